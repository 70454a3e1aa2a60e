#include "service/rpc/scope_table.h"

#include <array>

namespace kvtriage {
namespace {

constexpr std::array kRows = {
    MethodRow{RpcMethod::kAttach, "kvtriage.v1.SessionService.Attach", Scope::kNone},
    MethodRow{RpcMethod::kGetServerInfo, "kvtriage.v1.SessionService.GetServerInfo", Scope::kNone},
    MethodRow{RpcMethod::kRegisterRegions, "kvtriage.v1.MemoryService.RegisterRegions",
              Scope::kBound},
    MethodRow{RpcMethod::kUnregisterRegions, "kvtriage.v1.MemoryService.UnregisterRegions",
              Scope::kBound},
    MethodRow{RpcMethod::kListRegions, "kvtriage.v1.MemoryService.ListRegions", Scope::kBound},
    MethodRow{RpcMethod::kCompress, "kvtriage.v1.TriageService.Compress", Scope::kBound},
    MethodRow{RpcMethod::kCompressLayers, "kvtriage.v1.TriageService.CompressLayers",
              Scope::kBound},
    MethodRow{RpcMethod::kObserve, "kvtriage.v1.TriageService.Observe", Scope::kBound},
    MethodRow{RpcMethod::kReleaseSequence, "kvtriage.v1.TriageService.ReleaseSequence",
              Scope::kBound},
    MethodRow{RpcMethod::kRewind, "kvtriage.v1.TriageService.Rewind", Scope::kBound},
    MethodRow{RpcMethod::kSelectRecompute, "kvtriage.v1.BlendService.SelectRecompute",
              Scope::kBound},
    MethodRow{RpcMethod::kRerotate, "kvtriage.v1.BlendService.Rerotate", Scope::kBound},
    MethodRow{RpcMethod::kFuse, "kvtriage.v1.BlendService.Fuse", Scope::kBound},
    MethodRow{RpcMethod::kProbeMemory, "kvtriage.v1.AdminService.ProbeMemory", Scope::kBound},
};
static_assert(kRows.size() == kRpcMethods);

}  // namespace

std::span<const MethodRow> ScopeTable() { return kRows; }

absl::StatusOr<std::shared_ptr<Session>> PassGate(SessionTable& sessions, RpcMethod method,
                                                  std::optional<std::string_view> token) {
  if (kRows[static_cast<size_t>(method)].scope == Scope::kNone) return std::shared_ptr<Session>();
  return sessions.FindBound(token.value_or(""));
}

}  // namespace kvtriage
