// What a checked RegisterRegions wants.
#ifndef KVTRIAGE_SERVICE_POLICY_REGISTER_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_REGISTER_SPEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "service/policy/cache_spec.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Part of an allocation of cudaMalloc that its owner exports. The driver maps whole allocations;
// only the part is ever touched.
struct CudaAllocation {
  std::array<std::byte, 64> handle{};  // cudaIpcMemHandle_t
  std::string device_uuid;             // "GPU-..." or "MIG-...", at most kMaxDeviceUuidBytes
  uint64_t base_offset = 0;            // of the part; it lies inside the allocation
  uint64_t allocation_bytes = 0;
  uint32_t exporter_pid = 0;  // as the exporter sees it; > 0
  uint64_t generation = 0;    // of the exporter's allocations; > 0
};

// Of a memory file that was handed over as a descriptor, or of `cuda`.
struct RegionRequest {
  uint64_t ticket = 0;  // not with `cuda`, as `offset`
  uint64_t offset = 0;  // into the memfd
  uint64_t size = 0;    // > 0
  bool writable = false;
  uint32_t tag = 0;
  uint64_t fingerprint_offset = 0;  // from the region's start
  std::string fingerprint;          // bytes expected there, at most 64; empty = none
  std::optional<CudaAllocation> cuda;
};

struct RegisterSpec {
  RequestHeader header;
  std::vector<RegionRequest> regions;
  struct Cache {
    CacheSpec spec;  // region ids below 2^32 are 1-based indexes into `regions`
    uint32_t tag = 0;
  };
  std::vector<Cache> caches;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_REGISTER_SPEC_H_
