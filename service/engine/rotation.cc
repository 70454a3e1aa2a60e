#include "service/engine/rotation.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

bool SameTurn(const RotateRequest& request, const PlanLayer& layer, const KvView& keys) {
  return request.rope == layer.rope && request.keys.front().layout.heads == keys.layout.heads;
}

// Layers [begin, end): one request per rope and number of heads, so that they share their sines.
std::vector<RotateRequest> RequestsOf(const PlanCache& cache, std::span<const PlanLayer> targets,
                                      const Rotation& rotation, size_t begin, size_t end) {
  std::vector<RotateRequest> requests;
  for (size_t l = begin; l < end; ++l) {
    const PlanLayer& layer = cache.layers[l];
    if (layer.rope == nullptr) continue;
    const KvView& keys = targets[l].k;
    auto request = std::find_if(requests.begin(), requests.end(),
                                [&](const RotateRequest& r) { return SameTurn(r, layer, keys); });
    if (request == requests.end()) {
      request = requests.insert(requests.end(), {{},
                                                 rotation.rows,
                                                 rotation.first_row,
                                                 rotation.count,
                                                 layer.rope,
                                                 rotation.mode,
                                                 rotation.from,
                                                 rotation.to,
                                                 {}});
    }
    request->keys.push_back(keys);
    for (uint32_t h = 0; rotation.kept != nullptr && h < layer.kv_heads(); ++h) {
      request->from_rows.push_back(rotation.kept->ListOf(static_cast<uint32_t>(l), h));
    }
  }
  return requests;
}

bool Turns(const PlanLayer& layer, const RowPosition& from, const RowPosition& to) {
  return layer.rope != nullptr && (layer.rope->multi_plane() ? from != to : from[0] != to[0]);
}

}  // namespace

RowPositions PositionsFrom(const std::optional<PositionsSpec>& positions, uint64_t rows,
                           uint32_t first_row) {
  RowPositions out;
  if (!positions) return out;
  out.first = positions->first.value_or(0) + first_row;
  if (positions->first) return out;
  out.list = positions->list.data() + first_row;
  out.rows = static_cast<uint32_t>(rows);
  return out;
}

absl::Status CheckPlanes(const PlanCache& cache, const std::optional<PositionsSpec>& positions,
                         uint64_t rows, std::string_view field) {
  if (!positions || rows == 0) return absl::OkStatus();
  const bool wants_three = std::any_of(
      cache.layers.begin(), cache.layers.end(),
      [](const PlanLayer& layer) { return layer.rope != nullptr && layer.rope->multi_plane(); });
  const bool has_three = !positions->first && positions->list.size() == 3 * rows;
  if (wants_three == has_three) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, field,
               wants_three ? "M-RoPE needs three planes of positions"
                           : "no layer of the call has M-RoPE: one position per row")
      .Got(positions->first ? 1 : positions->list.size() / rows)
      .Limit(wants_three ? 3 : 1);
}

std::vector<int32_t> TurnedRows(const PlanCache& cache, const Rotation& rotation) {
  const bool planes = std::any_of(
      cache.layers.begin(), cache.layers.end(),
      [](const PlanLayer& layer) { return layer.rope != nullptr && layer.rope->multi_plane(); });
  std::vector<int32_t> turned;
  for (uint32_t j = 0; j < rotation.count; ++j) {
    const RowPosition from = rotation.from.At(j, planes), to = rotation.to.At(j, planes);
    if (from == to) continue;
    const bool turns = std::any_of(cache.layers.begin(), cache.layers.end(),
                                   [&](const PlanLayer& layer) { return Turns(layer, from, to); });
    if (turns) turned.push_back(static_cast<int32_t>(rotation.first_row + j));
  }
  return turned;
}

bool IsRenumbered(const PlanLayer& layer, const RowPositions& from, std::span<const int32_t> kept,
                  size_t j) {
  if (layer.rope == nullptr) return false;
  const bool planes = layer.rope->multi_plane();
  const RowPosition old = from.At(static_cast<uint64_t>(kept[j]), planes);
  return Turns(layer, old, AtPosition(static_cast<int64_t>(j)));
}

absl::StatusOr<uint64_t> RotateRows(Backend& backend, const PlanCache& cache,
                                    std::span<const PlanLayer> targets, const Rotation& rotation) {
  uint64_t bytes = 0;
  const auto rotate = [&](size_t begin, size_t end) -> absl::Status {
    RotateResult result;
    KVTRIAGE_RETURN_IF_ERROR(
        backend.Rotate(RequestsOf(cache, targets, rotation, begin, end), result));
    bytes += result.bytes_written;
    return absl::OkStatus();
  };
#ifdef KVTRIAGE_FAULT_POINTS
  // Two calls, so that a test can stop the service when some layers have turned and some have not.
  const size_t half = cache.layers.size() / 2;
  KVTRIAGE_RETURN_IF_ERROR(rotate(0, half));
  FaultPoint("rerotate.mid_rows");
  KVTRIAGE_RETURN_IF_ERROR(rotate(half, cache.layers.size()));
#else
  KVTRIAGE_RETURN_IF_ERROR(rotate(0, cache.layers.size()));
#endif
  return bytes;
}

}  // namespace kvtriage
