// What every RPC needs, made and owned by service/app. All of it is thread-safe.
#ifndef KVTRIAGE_SERVICE_RPC_RPC_CORE_H_
#define KVTRIAGE_SERVICE_RPC_RPC_CORE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "service/engine/engine.h"
#include "service/observe/log.h"
#include "service/observe/metrics.h"
#include "service/policy/named_policies.h"
#include "service/rpc/memory_prober.h"
#include "service/session/doorkeeper.h"
#include "service/session/session_table.h"
#include "service/validate/limits.h"

namespace kvtriage {

struct RpcCore {
  const uint64_t epoch;
  SessionTable& sessions;
  Engine& engine;
  MemoryProber& prober;
  const DeviceList& devices;
  Doorkeeper& doorkeeper;
  Metrics& metrics;
  Log& log;
  const Limits limits;
  const PolicyDefaults policy;
  const std::string fd_socket_name;  // in the directory of the main socket
  std::atomic<bool> draining{false};
  std::atomic<bool> sick{false};
  std::atomic<uint64_t> last_log_id{0};
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_RPC_CORE_H_
