// What a service says about itself.
#ifndef KVTRIAGE_CLIENT_SERVER_INFO_H_
#define KVTRIAGE_CLIENT_SERVER_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvtriage/policy.h"

namespace kvtriage::client {

struct ServerLimits {  // bytes, counts, milliseconds
  uint32_t max_request_bytes = 0, max_response_bytes = 0;
  uint32_t max_regions = 0, max_caches = 0;
  uint32_t max_sequences_per_call = 0, max_blocks_per_table = 0;
  uint32_t max_in_flight = 0, max_tracked_sequences = 0;
  uint64_t max_state_bytes = 0;  // running scores of all sessions
  uint32_t default_deadline_ms = 0, max_deadline_ms = 0;
  uint32_t result_ttl_ms = 0;
};

struct ServerDevice {
  std::string kind;  // "cpu", "cuda", or "unknown" when newer than this library
  std::string name;
  uint64_t memory_bytes = 0;
  bool healthy = false;
  std::string uuid;  // of a CUDA device
};

struct ServerInfo {
  uint64_t epoch = 0;  // new at every start of the service; compare for equality
  std::string version;
  uint32_t min_api_revision = 0, max_api_revision = 0;
  bool draining = false;
  bool groups = false;  // ranks may decide together (group.h)
  std::vector<ServerDevice> devices;
  ServerLimits limits;
  std::vector<Policy> policies;  // every known name, expanded, without amounts
  std::string default_policy;    // empty: a request must name one
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_SERVER_INFO_H_
