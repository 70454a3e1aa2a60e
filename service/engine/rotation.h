// Turning the keys of one sequence: all its layers that have a rotary part.
#ifndef KVTRIAGE_SERVICE_ENGINE_ROTATION_H_
#define KVTRIAGE_SERVICE_ENGINE_ROTATION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "service/engine/plan.h"

namespace kvtriage {

// Rows first_row + j of `rows` go to position to.At(j), j < count. They come from from.At(j), or,
// when a triage's kept rows have just been moved together, from from.At(kept row j of the head's
// list).
struct Rotation {
  SequenceRows rows;
  uint32_t first_row = 0, count = 0;
  RowPositions from, to;
  AngleMode mode = AngleMode::kExact;
  const TriageResult* kept = nullptr;
};

// Points into `positions`; rows [first_row, ...) of the `rows` it holds. Without positions (a
// sequence without rows) all are 0.
RowPositions PositionsFrom(const std::optional<PositionsSpec>& positions, uint64_t rows,
                           uint32_t first_row);

// Whether `positions` of `rows` rows suit every rope of the cache's layers: three planes where one
// has M-RoPE sections, else one. FIELD_INVALID.
absl::Status CheckPlanes(const PlanCache& cache, const std::optional<PositionsSpec>& positions,
                         uint64_t rows, std::string_view field);

// Rows of first_row, first_row + 1, ... whose position changes in a layer of the cache, ascending;
// without `kept`.
std::vector<int32_t> TurnedRows(const PlanCache& cache, const Rotation& rotation);

// Whether kept row j of a list of the triage turns when it is renumbered; `from` as in Rotation.
bool IsRenumbered(const PlanLayer& layer, const RowPositions& from, std::span<const int32_t> kept,
                  size_t j);

// Turns the keys of `targets`, which are the layers of `cache` or their copies. Bytes written. Any
// error leaves rows half turned.
absl::StatusOr<uint64_t> RotateRows(Backend& backend, const PlanCache& cache,
                                    std::span<const PlanLayer> targets, const Rotation& rotation);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ROTATION_H_
