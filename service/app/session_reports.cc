#include "service/app/session_reports.h"

namespace kvtriage {

void SessionReports::OnAttached(const Session& session) {
  metrics_.OnAttached(session);
  const ClientHello& hello = session.hello();
  log_.Write(LogLine(LogLevel::kInfo, "session_attached")
                 .AddHex("session", session.id())
                 .Add("client", hello.client)  // its characters were checked
                 .Add("rank", uint64_t{hello.rank})
                 .Add("world_size", uint64_t{hello.world_size}));
}

void SessionReports::OnBound(const Session& session, const PeerProcess& peer) {
  metrics_.OnBound(session, peer);
  log_.Write(LogLine(LogLevel::kInfo, "session_bound")
                 .AddHex("session", session.id())
                 .Add("uid", uint64_t{peer.uid})
                 .Add("pid", static_cast<uint64_t>(peer.pid)));
}

void SessionReports::OnEnded(const Session& session, EndCause cause) {
  metrics_.OnEnded(session, cause);
  log_.Write(LogLine(LogLevel::kInfo, "session_ended")
                 .AddHex("session", session.id())
                 .Add("cause", EndCauseName(cause)));
}

}  // namespace kvtriage
