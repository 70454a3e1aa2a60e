// Sessions that come and go: counted, and one log line each way.
#ifndef KVTRIAGE_SERVICE_APP_SESSION_REPORTS_H_
#define KVTRIAGE_SERVICE_APP_SESSION_REPORTS_H_

#include "service/observe/log.h"
#include "service/observe/metrics.h"
#include "service/session/session_table.h"

namespace kvtriage {

class SessionReports final : public SessionObserver {
 public:
  SessionReports(Metrics& metrics, Log& log) : metrics_(metrics), log_(log) {}

  void OnAttached(const Session& session) override;
  void OnBound(const Session& session, const PeerProcess& peer) override;
  void OnEnded(const Session& session, EndCause cause) override;

 private:
  Metrics& metrics_;
  Log& log_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_SESSION_REPORTS_H_
