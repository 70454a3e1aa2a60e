// The gRPC server of the main socket. Connections are accepted elsewhere, where the peer can be
// checked.
#ifndef KVTRIAGE_SERVICE_RPC_RPC_SERVER_H_
#define KVTRIAGE_SERVICE_RPC_RPC_SERVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "service/memory/unique_fd.h"
#include "service/rpc/rpc_core.h"

namespace kvtriage {

class RpcServer {
 public:
  struct Settings {
    uint32_t keepalive_ms = 5'000, keepalive_timeout_ms = 5'000;
    bool reflection = false;
  };
  // `core` outlives the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(RpcCore& core, const Settings& settings);
  ~RpcServer();  // Shutdown(0)
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // A connected, non-blocking stream socket of a peer that may talk to us. Any thread.
  void TakeConnection(UniqueFd fd);

  // Health: "" = alive, "kvtriage.startup" = started, "kvtriage.ready" and every service's full
  // name = ready.
  void SetHealth(bool alive, bool started, bool ready);

  // Open calls get `timeout_ms`, then they are cancelled. Returns when all are finished: never, if
  // one is not.
  void Shutdown(uint64_t timeout_ms);

 private:
  RpcServer();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_RPC_SERVER_H_
