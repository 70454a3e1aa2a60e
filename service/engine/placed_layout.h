// Where views and tensors lie in their files or allocations: the same memory may have been lent
// twice, so overlaps are looked for there and not in regions.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLACED_LAYOUT_H_
#define KVTRIAGE_SERVICE_ENGINE_PLACED_LAYOUT_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "service/engine/pin_set.h"
#include "service/engine/plan.h"
#include "service/memory/region.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

struct PlacedLayout {
  RegionPlace place;  // of the first byte
  ViewLayout layout;
};

// Both lie inside their regions already. MEMORY_UNKNOWN.
absl::StatusOr<PlacedLayout> PlaceView(SessionMemory& memory, const ViewSpec& view,
                                       std::string_view field, PinSet& pins);
absl::StatusOr<PlacedLayout> PlaceTensor(SessionMemory& memory, const TensorSpec& tensor,
                                         uint32_t layer, std::string_view field, PinSet& pins);

// Whether they may share a byte. Exact where ViewsAlias is; two layouts of which one overlaps
// itself share bytes as soon as their ranges meet.
bool MayMeet(const PlacedLayout& a, const PlacedLayout& b);

// Whether a tensor that is read lies apart from every view of the call's layers, which are written.
// VIEW_OVERLAP.
absl::Status CheckTensorApart(SessionMemory& memory, const PlanCache& cache,
                              const TensorSpec& tensor, std::string_view field, PinSet& pins);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLACED_LAYOUT_H_
