// CacheSpec: everything about a cache that can be judged without its memory.
#ifndef KVTRIAGE_SERVICE_VALIDATE_CACHE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_CACHE_PROTO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

// `regions` = regions in the same registration, for 1-based indexes. Left to the owner of the
// regions: whether ids exist, views lie inside them, and views of the cache share no byte.
absl::StatusOr<CacheSpec> ParseCache(const v1::CacheSpec& cache, uint32_t regions);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_CACHE_PROTO_H_
