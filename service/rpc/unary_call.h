// One unary RPC from its arrival to its answer. Whoever holds the last pointer to it without having
// finished it makes it INTERNAL: a call is answered exactly once, whatever happens, because a
// single unanswered one would keep the server from ever shutting down.
#ifndef KVTRIAGE_SERVICE_RPC_UNARY_CALL_H_
#define KVTRIAGE_SERVICE_RPC_UNARY_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "service/engine/engine.h"
#include "service/rpc/call_report.h"
#include "service/rpc/rpc_core.h"

namespace kvtriage {

// What a call has once it may run.
struct PassedCall {
  std::shared_ptr<Session> session;  // null where the method needs none
  absl::Time deadline;
};
// The gate, and the deadline rules (`usual` when the client set none).
absl::StatusOr<PassedCall> PassChecks(RpcCore& core, const grpc::CallbackServerContext& context,
                                      RpcMethod method, absl::Time begin, absl::Duration usual);

class UnaryCall : public std::enable_shared_from_this<UnaryCall> {
 public:
  // Passes the gate and fixes the deadline (`usual` when the client set none). A call that was
  // refused here is finished already: return its reactor.
  static std::shared_ptr<UnaryCall> Begin(RpcCore& core, grpc::CallbackServerContext* context,
                                          RpcMethod method, absl::Duration usual);
  ~UnaryCall();
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  // For the handler to return; valid while this object lives, and after it until the handler has
  // returned.
  grpc::ServerUnaryReactor* reactor() const { return reactor_; }
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  const std::shared_ptr<Session>& session() const { return session_; }
  absl::Time deadline() const { return deadline_; }
  absl::Time begin() const { return report_.begin; }

  // The engine's view of this call.
  Call EngineCall(const BodyDigest& body, std::function<void(CallResult)> done) const;

  void SetJob(uint64_t job_id) { report_.job_id = job_id; }

  // Counts, logs and answers; the response must be complete when `status` is OK and is not ours
  // afterwards. Only the first call does anything. Any thread.
  void Finish(const absl::Status& status);

 private:
  class Reactor;
  UnaryCall(RpcCore& core, grpc::CallbackServerContext* context, RpcMethod method);

  RpcCore& core_;
  grpc::CallbackServerContext* const context_;  // until finished
  grpc::ServerUnaryReactor* reactor_;           // owned by gRPC; gone some time after Finish
  std::shared_ptr<std::atomic<bool>> cancelled_;
  std::shared_ptr<Session> session_;
  absl::Time deadline_ = absl::InfiniteFuture();
  CallReport report_;
  std::atomic<bool> finished_{false};
};

// The only value of a metadata key; nothing when there is none or more than one. Points into the
// context.
std::optional<std::string_view> OnlyMetadata(const grpc::CallbackServerContext& context,
                                             const char* key);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_UNARY_CALL_H_
