// Who may call which method: the one table, and the gate that reads it.
#ifndef KVTRIAGE_SERVICE_RPC_SCOPE_TABLE_H_
#define KVTRIAGE_SERVICE_RPC_SCOPE_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/observe/rpc_method.h"
#include "service/session/session_table.h"

namespace kvtriage {

enum class Scope : uint8_t {
  kNone,   // anybody whom the socket let in
  kBound,  // a session whose process was seen on the fd socket
};

struct MethodRow {
  RpcMethod method;
  std::string_view full_name;  // "kvtriage.v1.TriageService.Compress"
  Scope scope;
};

// In the order of RpcMethod. A test compares it with every service of the API.
std::span<const MethodRow> ScopeTable();

// The caller's session; null where the method needs none. SESSION_UNKNOWN (no token, too),
// SESSION_NOT_BOUND.
absl::StatusOr<std::shared_ptr<Session>> PassGate(SessionTable& sessions, RpcMethod method,
                                                  std::optional<std::string_view> token);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_SCOPE_TABLE_H_
