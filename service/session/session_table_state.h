// Inside SessionTable. Only its own sources include this.
#ifndef KVTRIAGE_SERVICE_SESSION_SESSION_TABLE_STATE_H_
#define KVTRIAGE_SERVICE_SESSION_SESSION_TABLE_STATE_H_

#include <memory>
#include <unordered_map>

#include "kernels/core/mutex.h"
#include "service/session/attach_rate.h"
#include "service/session/session_table.h"

namespace kvtriage {

// Lock order: this mutex first, then the doorkeeper's; a session's memory is never called under it,
// and no callback, observer, mapping or close of a descriptor runs under it.
struct SessionTable::State : std::enable_shared_from_this<SessionTable::State> {
  using SessionRef = std::shared_ptr<Session>;

  State(uint64_t epoch, const SessionLimits& limits, Doorkeeper& doorkeeper, Mapper& mapper,
        SessionObserver* sessions, MappingObserver* mappings, const DeviceList* devices)
      : epoch(epoch),
        limits(limits),
        doorkeeper(doorkeeper),
        mapper(mapper),
        sessions(sessions),
        mappings(mappings),
        devices(devices),
        attach_rate(limits.attach_per_second) {}

  // session_binding.cc
  absl::Status Publish(const SessionRef& session, const PeerProcess& peer, uint64_t process_number,
                       UniqueFd& pidfd, std::unique_ptr<Ledger>& ledger);
  absl::Status CheckSameProcess(const Session& session, const PeerProcess& peer,
                                uint64_t process_number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // session_ending.cc
  void End(const SessionRef& session, EndCause cause);
  void RunEnd(const SessionRef& session, EndCause cause);    // doorkeeper
  void OnEngineFinished(const SessionRef& session);          // doorkeeper
  void OnClosed(const SessionRef& session, EndCause cause);  // doorkeeper

  const uint64_t epoch;
  const SessionLimits limits;
  Doorkeeper& doorkeeper;
  Mapper& mapper;
  SessionObserver* const sessions;
  MappingObserver* const mappings;
  const DeviceList* const devices;

  Mutex mutex;
  CondVar one_closed;
  AttachRate attach_rate ABSL_GUARDED_BY(mutex);
  std::unordered_map<uint64_t, SessionRef> attached ABSL_GUARDED_BY(mutex);
  uint32_t bound ABSL_GUARDED_BY(mutex) = 0;     // until their mappings are gone
  uint32_t unclosed ABSL_GUARDED_BY(mutex) = 0;  // attached, or ending
  bool draining ABSL_GUARDED_BY(mutex) = false;
  EngineEnd engine_end ABSL_GUARDED_BY(mutex);
};

absl::Status SessionUnknown();
absl::Status TooManySessions(std::string_view text, uint64_t limit);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_SESSION_TABLE_STATE_H_
