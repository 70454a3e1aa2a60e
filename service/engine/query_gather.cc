#include "service/engine/query_gather.h"

#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/dense_view.h"
#include "service/engine/placed_layout.h"
#include "service/engine/row_source.h"
#include "service/policy/view_geometry.h"

namespace kvtriage {
namespace {

constexpr std::string_view kTo = "gather.to";

// Where a source that has been resolved lies.
absl::StatusOr<PlacedLayout> PlaceSource(SessionMemory& memory, const RowSourceSpec& source,
                                         std::string_view field, PinSet& pins) {
  if (source.tensor) return PlaceTensor(memory, *source.tensor, 0, field, pins);
  const auto cache = memory.FindCache(source.cache_id);
  if (!cache.ok()) return cache.status();
  const LayerSpec& layer = (*cache)->spec.layers[source.layer];
  return PlaceView(memory, source.values ? layer.v : layer.k, field, pins);
}

absl::Status CheckApart(SessionMemory& memory, const SelectRecomputeSpec& spec, PinSet& pins) {
  const TensorSpec& to = spec.gather->to;
  KVTRIAGE_ASSIGN_OR_RETURN(const PlacedLayout target, PlaceTensor(memory, to, 0, kTo, pins));
  if (const absl::Status nested = CheckNested(target.layout); !nested.ok()) {
    return WithField(nested, kTo);
  }
  for (const RowSourceSpec* const source : {&spec.fresh, &spec.cached, &spec.gather->from}) {
    // A source without candidates was never resolved, and is not read.
    const auto place = PlaceSource(memory, *source, kTo, pins);
    if (!place.ok() || !MayMeet(target, *place)) continue;
    return Error(ErrorReason::kViewOverlap, kTo, "shares bytes with rows that the call reads");
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const TensorSpec& to, const ViewLayout& from, uint64_t rows) {
  const auto differs = [](const char* name, uint64_t got, uint64_t want) -> absl::Status {
    return Error(ErrorReason::kGeometryInvalid, std::string(kTo) + "." + name,
                 "differs from gather.from")
        .Got(got)
        .Limit(want);
  };
  if (to.heads != from.heads) return differs("heads", to.heads, from.heads);
  if (to.elems != from.row_elems) return differs("elems", to.elems, from.row_elems);
  if (to.dtype != from.dtype) {
    return differs("dtype", static_cast<uint64_t>(to.dtype), static_cast<uint64_t>(from.dtype));
  }
  if (to.rows >= rows) return absl::OkStatus();
  return Error(ErrorReason::kDestinationTooSmall, std::string(kTo) + ".rows",
               "fewer rows than were selected")
      .Got(to.rows)
      .Limit(rows);
}

}  // namespace

absl::StatusOr<RowCopy> PlanGather(SessionMemory& memory, const SelectRecomputeSpec& spec,
                                   std::span<const int32_t> rows, std::vector<int32_t>& from_row,
                                   PinSet& pins) {
  const TensorSpec& to = spec.gather->to;
  KVTRIAGE_ASSIGN_OR_RETURN(const DivergenceRows from,
                            ResolveRows(memory, spec.gather->from, rows, "gather.from", pins));
  KVTRIAGE_RETURN_IF_ERROR(CheckShape(to, from.view.layout, rows.size()));
  KVTRIAGE_ASSIGN_OR_RETURN(const ResolvedTensor target, ResolveTensor(memory, to, kTo, pins));
  KVTRIAGE_ASSIGN_OR_RETURN(const RegionPin* pin, pins.Pin(memory, to.region_id, kTo));
  if (!pin->writable()) {
    return absl::Status(
        Error(ErrorReason::kRegionReadOnly, kTo, "lies in a region lent for reading"));
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckApart(memory, spec, pins));
  from_row.reserve(rows.size());
  for (const int32_t row : rows) {
    from_row.push_back(row - static_cast<int32_t>(from.first_row));
  }
  RowCopy copy;
  copy.from = from.view;
  copy.from_rows = from.sequence;
  copy.from_row = from_row;
  copy.to = DenseView(target, 0);
  copy.to_rows = DenseRows(to.rows);
  copy.count = static_cast<uint32_t>(rows.size());
  return copy;
}

}  // namespace kvtriage
