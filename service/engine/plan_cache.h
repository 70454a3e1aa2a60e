// Resolving a cache description into views at real addresses.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_CACHE_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_CACHE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/engine/plan.h"

namespace kvtriage {

// The layers `indexes` (ascending; empty = all) of a registered cache, its regions pinned.
// `written` asks for writable regions. MEMORY_UNKNOWN (field `field`), INDEX_OUT_OF_RANGE (field
// "layers_le"), REGION_READ_ONLY.
absl::StatusOr<PlanCache> PlanLayers(SessionMemory& memory, uint64_t cache_id,
                                     std::span<const uint32_t> indexes, bool written,
                                     std::string_view field, PinSet& pins);

// LAYER_NOT_MOVABLE (index = layer) when a layer's rows may not change their place.
absl::Status CheckMovable(const PlanCache& cache, std::string_view field);

// Whether rows of `from` may be copied into `to`: same layers, KV heads, row encodings and
// companions. GEOMETRY_INVALID (field "act.copy_to.cache_id", index = layer of the call).
absl::Status CheckSameGeometry(const PlanCache& from, const PlanCache& to);

// Whether two different caches lie in different memory. The same bytes may have been lent or
// described twice, and block ids of two descriptions cannot be compared. DESTINATION_OVERLAP.
absl::Status CheckApart(SessionMemory& memory, const PlanCache& from, const PlanCache& to,
                        PinSet& pins);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_CACHE_H_
