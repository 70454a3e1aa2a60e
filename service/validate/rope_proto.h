// RopeSpec: rotary data of a cache's layers.
#ifndef KVTRIAGE_SERVICE_VALIDATE_ROPE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_ROPE_PROTO_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

// CacheSpec.ropes with their speeds worked out. ROPE_UNSUPPORTED for kinds that a turn by a
// difference of positions cannot correct.
absl::StatusOr<std::vector<Rope>> ParseRopes(const v1::CacheSpec& cache);

// Whether the layer's rope exists and its rotated channels lie inside the K row: FIELD_INVALID,
// GEOMETRY_INVALID, both for the field "rope_index".
absl::Status CheckLayerRope(const std::vector<Rope>& ropes, const LayerSpec& layer);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_ROPE_PROTO_H_
