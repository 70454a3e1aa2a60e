#include "service/engine/row_source.h"

#include <string>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/dense_view.h"
#include "service/engine/plan_cache.h"
#include "service/engine/plan_tables.h"
#include "service/engine/plan_tensor.h"

namespace kvtriage {
namespace {

absl::StatusOr<DivergenceRows> ResolveDense(SessionMemory& memory, const RowSourceSpec& source,
                                            std::span<const int32_t> rows, const std::string& field,
                                            PinSet& pins) {
  const TensorSpec& spec = *source.tensor;
  const uint64_t first = static_cast<uint64_t>(rows.front());
  const uint64_t last = static_cast<uint64_t>(rows.back());
  if (first < source.first_row || last - source.first_row >= spec.rows) {
    return absl::Status(Error(ErrorReason::kFieldInvalid, field + ".rows",
                              "the tensor does not hold every row to compare")
                            .Got(first < source.first_row ? first : last)
                            .Limit(uint64_t{source.first_row} + spec.rows));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const ResolvedTensor tensor, ResolveTensor(memory, spec, field, pins));
  DivergenceRows dense;
  dense.view = DenseView(tensor, 0);
  dense.sequence = DenseRows(spec.rows);
  dense.first_row = source.first_row;
  return dense;
}

absl::StatusOr<DivergenceRows> ResolvePaged(SessionMemory& memory, const RowSourceSpec& source,
                                            std::span<const int32_t> rows, const std::string& field,
                                            PinSet& pins) {
  const std::vector<uint32_t> layer{source.layer};
  absl::StatusOr<PlanCache> planned =
      PlanLayers(memory, source.cache_id, layer, /*written=*/false, field + ".cache_id", pins);
  if (!planned.ok()) {
    const auto info = GetErrorInfo(planned.status());
    const bool no_layer = info && info->reason == ErrorReason::kIndexOutOfRange;
    if (!no_layer) return planned.status();
    return absl::Status(
        Error(ErrorReason::kIndexOutOfRange, field + ".layer", "no such layer in the cache")
            .Got(info->got)
            .Limit(info->limit));
  }
  DivergenceRows paged;
  paged.view = source.values ? planned->layers[0].v : planned->layers[0].k;
  if (paged.view.layout.opaque()) {
    return absl::Status(
        Error(ErrorReason::kUnsupported, field + ".cache_id", "opaque rows cannot be compared"));
  }
  const uint64_t end = static_cast<uint64_t>(rows.back()) + 1;
  const uint64_t entries = planned->EntriesFor(source.first_slot + end);
  KVTRIAGE_RETURN_IF_ERROR(CheckTable(*planned, source.table, entries, field + ".table"));
  paged.sequence = {source.table.data(), source.first_slot, static_cast<uint32_t>(end)};
  return paged;
}

}  // namespace

absl::StatusOr<DivergenceRows> ResolveRows(SessionMemory& memory, const RowSourceSpec& source,
                                           std::span<const int32_t> rows, std::string_view name,
                                           PinSet& pins) {
  const std::string field(name);
  if (source.tensor) return ResolveDense(memory, source, rows, field + ".tensor", pins);
  return ResolvePaged(memory, source, rows, field + ".paged", pins);
}

DeviceIndex DeviceOf(SessionMemory& memory, const RowSourceSpec& source) {
  return source.tensor ? memory.DeviceOfRegion(source.tensor->region_id)
                       : memory.DeviceOfCache(source.cache_id);
}

uint64_t RowBytes(SessionMemory& memory, const RowSourceSpec& source) {
  if (source.tensor) {
    return uint64_t{source.tensor->heads} * source.tensor->elems *
           ElementBytes(source.tensor->dtype);
  }
  const auto cache = memory.FindCache(source.cache_id);
  if (!cache.ok() || source.layer >= (*cache)->spec.layers.size()) return 0;
  const LayerSpec& layer = (*cache)->spec.layers[source.layer];
  const ViewLayout& layout = source.values ? layer.v.layout : layer.k.layout;
  return layout.heads * layout.row_bytes();
}

}  // namespace kvtriage
