// One attached worker. Owned by the SessionTable; calls hold a shared_ptr for as long as they need
// it.
#ifndef KVTRIAGE_SERVICE_SESSION_SESSION_H_
#define KVTRIAGE_SERVICE_SESSION_SESSION_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/memory/ledger.h"
#include "service/memory/session_memory.h"
#include "service/memory/unique_fd.h"
#include "service/session/peer.h"

namespace kvtriage {

// Session id (8 bytes, little-endian), then a 16-byte secret. Never logged.
using SessionToken = std::array<uint8_t, 24>;

enum class EndCause : uint8_t { kClient, kLease, kPeerDied, kDrain, kProtocol };
std::string_view EndCauseName(
    EndCause cause);  // "client", "lease", "peer_died", "drain", "protocol"

enum class NoticeKind : uint8_t { kDraining, kDeviceSick, kSessionEnding };
struct SessionNotice {
  NoticeKind kind = NoticeKind::kDraining;
  uint32_t deadline_ms = 0;
  std::string_view reason;  // of the closed set in session.proto
};

struct ClientHello {  // checked already
  std::string client;
  uint32_t rank = 0, world_size = 0;
};

class Session {
 public:
  uint64_t id() const { return id_; }
  const SessionToken& token() const { return token_; }
  const ClientHello& hello() const { return hello_; }
  SessionMemory& memory() { return *memory_; }

  bool bound() const { return bound_.load(std::memory_order_acquire); }
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // User id of the process that bound it; nobody's before.
  uint32_t uid() const { return bound() ? peer_.uid : UINT32_MAX; }
  // Null until bound. Stays valid as long as the session object.
  Ledger* ledger() const { return bound() ? ledger_.get() : nullptr; }

 private:
  friend class SessionTable;
  uint64_t id_ = 0;
  SessionToken token_{};
  ClientHello hello_;
  std::unique_ptr<SessionMemory> memory_;
  std::unique_ptr<Ledger> ledger_;  // written once, before bound_
  std::atomic<bool> bound_{false}, ended_{false};

  PeerProcess peer_;  // who bound it; written once, before bound_

  // Under the table's lock.
  uint64_t process_number_ = 0;
  UniqueFd pidfd_;
  std::function<void(const SessionNotice&)> notify_;
  std::function<void(EndCause)> on_ended_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_SESSION_H_
