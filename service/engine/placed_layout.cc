#include "service/engine/placed_layout.h"

#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/dense_view.h"
#include "service/policy/view_geometry.h"

namespace kvtriage {
namespace {

absl::StatusOr<RegionPlace> PlaceIn(SessionMemory& memory, uint64_t region_id, uint64_t offset,
                                    std::string_view field, PinSet& pins) {
  KVTRIAGE_ASSIGN_OR_RETURN(const RegionPin* pin, pins.Pin(memory, region_id, field));
  RegionPlace place = pin->region().place();
  place.offset += offset;
  return place;
}

}  // namespace

absl::StatusOr<PlacedLayout> PlaceView(SessionMemory& memory, const ViewSpec& view,
                                       std::string_view field, PinSet& pins) {
  KVTRIAGE_ASSIGN_OR_RETURN(const RegionPlace place,
                            PlaceIn(memory, view.region_id, view.offset, field, pins));
  return PlacedLayout{place, view.layout};
}

absl::StatusOr<PlacedLayout> PlaceTensor(SessionMemory& memory, const TensorSpec& tensor,
                                         uint32_t layer, std::string_view field, PinSet& pins) {
  const uint64_t offset = tensor.offset + layer * tensor.layer_stride;
  KVTRIAGE_ASSIGN_OR_RETURN(const RegionPlace place,
                            PlaceIn(memory, tensor.region_id, offset, field, pins));
  return PlacedLayout{place, DenseLayout(tensor)};
}

bool MayMeet(const PlacedLayout& a, const PlacedLayout& b) {
  if (!a.place.SameObject(b.place)) return false;
  const absl::StatusOr<uint64_t> a_bytes = ViewSpan(a.layout), b_bytes = ViewSpan(b.layout);
  if (!a_bytes.ok() || !b_bytes.ok()) return true;
  if (a.place.offset + *a_bytes <= b.place.offset) return false;
  if (b.place.offset + *b_bytes <= a.place.offset) return false;
  if (!CheckNested(a.layout).ok() || !CheckNested(b.layout).ok()) return true;
  return ViewsAlias(a.place.offset, a.layout, b.place.offset, b.layout);
}

absl::Status CheckTensorApart(SessionMemory& memory, const PlanCache& cache,
                              const TensorSpec& tensor, std::string_view field, PinSet& pins) {
  std::vector<PlacedLayout> views;
  for (const PlanLayer& layer : cache.layers) {
    const LayerSpec& spec = cache.registered->spec.layers[layer.index];
    const auto place = [&](const ViewSpec& view, std::string_view) -> absl::Status {
      KVTRIAGE_ASSIGN_OR_RETURN(views.emplace_back(), PlaceView(memory, view, field, pins));
      return absl::OkStatus();
    };
    KVTRIAGE_RETURN_IF_ERROR(spec.ForEachView(place));
  }
  for (uint32_t layer = 0; layer < tensor.layers; ++layer) {
    KVTRIAGE_ASSIGN_OR_RETURN(const PlacedLayout placed,
                              PlaceTensor(memory, tensor, layer, field, pins));
    for (const PlacedLayout& view : views) {
      if (!MayMeet(placed, view)) continue;
      return Error(ErrorReason::kViewOverlap, field, "lies in the cache it is written to")
          .Index(layer);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
