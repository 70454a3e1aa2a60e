// Where the views of a cache come to lie: every one inside its region, and no two on the same
// bytes. Pure; numbers come from clients, so nothing here may wrap.
#ifndef KVTRIAGE_SERVICE_MEMORY_CACHE_PLACEMENT_H_
#define KVTRIAGE_SERVICE_MEMORY_CACHE_PLACEMENT_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "service/memory/region.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

struct LentRange {
  RegionPlace place;
  uint64_t bytes = 0;
};

// The range behind a region id as the cache names it; null when there is none.
using FindRange = std::function<const LentRange*(uint64_t region_id)>;

// K, V and companions of all layers are compared in the file or allocation, not in the region: the
// same memory may have been lent twice. Errors name the view ("spec.layers[2].v"): MEMORY_UNKNOWN,
// GEOMETRY_OVERFLOW, RANGE_OUT_OF_REGION, MIXED_MEMORY (not all on one device), VIEW_OVERLAP. Each
// view is nested already (service/validate).
absl::Status CheckCachePlacement(const CacheSpec& cache, const FindRange& find);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_CACHE_PLACEMENT_H_
