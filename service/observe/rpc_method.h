// The RPCs of this service, as the metrics name them. Order: catalogue::kMethodValues.
#ifndef KVTRIAGE_SERVICE_OBSERVE_RPC_METHOD_H_
#define KVTRIAGE_SERVICE_OBSERVE_RPC_METHOD_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "service/observe/catalogue.h"

namespace kvtriage {

enum class RpcMethod : uint8_t {
  kAttach,
  kGetServerInfo,
  kRegisterRegions,
  kUnregisterRegions,
  kListRegions,
  kCompress,
  kCompressLayers,
  kObserve,
  kReleaseSequence,
  kRewind,
  kSelectRecompute,
  kRerotate,
  kFuse,
  kProbeMemory,
};

inline constexpr size_t kRpcMethods = catalogue::kMethodValues.size();
static_assert(kRpcMethods == static_cast<size_t>(RpcMethod::kProbeMemory) + 1);

constexpr std::string_view RpcMethodName(RpcMethod method) {
  return catalogue::kMethodValues[static_cast<size_t>(method)];
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_RPC_METHOD_H_
