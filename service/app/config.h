// What the operator set. Plain values with their defaults; config_keys.h has names, bounds and
// words.
#ifndef KVTRIAGE_SERVICE_APP_CONFIG_H_
#define KVTRIAGE_SERVICE_APP_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "service/observe/log.h"
#include "service/policy/named_policies.h"
#include "service/validate/limits.h"

namespace kvtriage {

struct Config {
  std::string uds = "/run/kvtriage/kvtriage.sock";
  std::string fd_uds;                      // empty until FinishConfig: derived from `uds`
  std::string metrics = "127.0.0.1:9401";  // empty: no page
  bool strict_dir = false;
  std::vector<uint32_t> allowed_uids, allowed_gids;  // empty until FinishConfig: our own
  bool uids_given = false, gids_given = false;
  Limits limits;
  bool reflection = false;
  uint32_t keepalive_ms = 5'000, keepalive_timeout_ms = 5'000;
  std::string backend = "auto";
  std::string cuda_devices = "all";  // or "none", or UUIDs with commas between them
  uint64_t cuda_arena_bytes = uint64_t{256} << 20;
  uint32_t cpu_threads = 0;  // 0: all cores
  uint32_t stuck_ms = 30'000;
  PolicyDefaults policy;
  uint32_t drain_notice_ms = 2'000, drain_deadline_ms = 20'000;
  std::string model = "default";
  bool per_layer = true;
  LogLevel log_level = LogLevel::kInfo;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_CONFIG_H_
