// All sessions of the process, looked up by token. Thread-safe.
#ifndef KVTRIAGE_SERVICE_SESSION_SESSION_TABLE_H_
#define KVTRIAGE_SERVICE_SESSION_SESSION_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "service/session/doorkeeper.h"
#include "service/session/session.h"

namespace kvtriage {

struct SessionLimits {
  uint32_t max_attached = 256;
  uint32_t max_bound = 64;
  uint32_t attach_per_second = 100;
  uint32_t ledger_bytes = 1u << 20;
  uint32_t ledger_slots = 4;
  MemoryQuota memory;
};

// Told of sessions coming and going (metrics, log). Called without locks held.
class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  virtual void OnAttached(const Session& session) = 0;
  virtual void OnBound(const Session& session, const PeerProcess& peer) = 0;
  virtual void OnEnded(const Session& session, EndCause cause) = 0;
};

class SessionTable {
 public:
  // The doorkeeper, the mapper, the observers (may be null), the devices (null: none) and whatever
  // EngineEnd calls outlive the table.
  SessionTable(uint64_t epoch, const SessionLimits& limits, Doorkeeper& doorkeeper, Mapper& mapper,
               SessionObserver* sessions, MappingObserver* mappings,
               const DeviceList* devices = nullptr);
  ~SessionTable();  // ends what is left and waits for it, at most 5 s; not on the doorkeeper's
                    // thread

  // What the engine does when a session ends: queued jobs go, a running one finishes; `finished` is
  // called when no job of the session will store anything any more. Set once before the first
  // Attach.
  using EngineEnd =
      std::function<void(const std::shared_ptr<Session>&, std::function<void()> finished)>;
  void SetEngineEnd(EngineEnd end);

  // A new session. `notify` delivers notices to the stream; when the session ends by our doing
  // (peer_died, drain, protocol) the last one is kSessionEnding, at once. `on_ended` tells the
  // stream that the session is over: its jobs have ended and its mappings are closed, so a Goodbye
  // may be answered. Both may come on any thread, must not block and are called without locks held;
  // a notice may overtake the end. They are let go at the end. SESSION_LIMIT, DRAINING.
  absl::StatusOr<std::shared_ptr<Session>> Attach(ClientHello hello,
                                                  std::function<void(const SessionNotice&)> notify,
                                                  std::function<void(EndCause)> on_ended);

  // By public id, secret compared in constant time. SESSION_UNKNOWN for every failure.
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view token);
  // Find, and bound: else SESSION_NOT_BOUND.
  absl::StatusOr<std::shared_ptr<Session>> FindBound(std::string_view token);

  // HELLO on the fd socket: fixes the session's process, makes its ledger, watches the pidfd (may
  // be invalid). Again from the same process: the same ledger. SESSION_UNKNOWN, SESSION_LIMIT.
  absl::StatusOr<std::shared_ptr<Session>> Bind(std::string_view token, const PeerProcess& peer,
                                                UniqueFd pidfd);

  // The first cause wins; later calls do nothing. The token goes at once; then, on the doorkeeper:
  // engine end, memory retires, ledger CLOSED.
  void End(const std::shared_ptr<Session>& session, EndCause cause);

  void NotifyAll(const SessionNotice& notice);
  void StopAttaching();  // Attach answers DRAINING from now on
  void EndAll(EndCause cause);
  uint32_t attached() const;
  // Waits until every session is closed and its mappings are gone; false after `timeout_ms`. Not on
  // the doorkeeper's thread.
  bool WaitAllClosed(uint64_t timeout_ms);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_SESSION_TABLE_H_
