// What a checked RegisterRegions wants.
#ifndef KVTRIAGE_SERVICE_POLICY_REGISTER_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_REGISTER_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "service/policy/cache_spec.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

struct RegionRequest {
  uint64_t ticket = 0;
  uint64_t offset = 0;  // into the memfd
  uint64_t size = 0;    // > 0
  bool writable = false;
  uint32_t tag = 0;
  uint64_t fingerprint_offset = 0;  // from the region's start
  std::string fingerprint;          // bytes expected there, at most 64; empty = none
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
