#include <algorithm>
#include <iterator>
#include <utility>

#include "service/engine/recompute.h"

namespace kvtriage {
namespace {

bool CameFromCache(const SelectRecomputeSpec& spec, uint32_t row) {
  return spec.cached_bitmap.empty() || (spec.cached_bitmap[row / 8] >> (row % 8) & 1) != 0;
}

}  // namespace

RowClasses ClassifyRows(const SelectRecomputeSpec& spec) {
  RowClasses classes;
  const uint32_t suffix = spec.rows - std::min(spec.suffix, spec.rows);
  // The last row's logits are needed, also when the prefix covers everything.
  const bool last_in_prefix = spec.rows > 0 && spec.prefix >= spec.rows;
  if (last_in_prefix && !spec.no_logits) {
    classes.must.push_back(static_cast<int32_t>(spec.rows - 1));
  }
  auto next_must = spec.must.begin();
  for (uint32_t row = spec.prefix; row < spec.rows; ++row) {
    const auto number = static_cast<int32_t>(row);
    const bool named = next_must != spec.must.end() && *next_must == number;
    if (named) ++next_must;
    const bool wanted_for_logits = !spec.no_logits && row + 1 == spec.rows;
    const bool must = named || row >= suffix || wanted_for_logits || !CameFromCache(spec, row);
    (must ? classes.must : classes.candidates).push_back(number);
  }
  if (!spec.previous) return classes;
  std::vector<int32_t> narrowed;
  std::set_intersection(classes.candidates.begin(), classes.candidates.end(),
                        spec.previous->hkvd.begin(), spec.previous->hkvd.end(),
                        std::back_inserter(narrowed));
  classes.candidates = std::move(narrowed);
  return classes;
}

std::vector<int32_t> KeyLimits(const SelectRecomputeSpec& spec, const std::vector<int32_t>& rows) {
  std::vector<int32_t> limits;
  limits.reserve(rows.size());
  auto end = spec.positions.begin();
  for (const int32_t row : rows) {
    if (spec.positions.empty()) {
      limits.push_back(row + 1);
      continue;
    }
    end = std::upper_bound(end, spec.positions.end(), spec.positions[row]);
    limits.push_back(static_cast<int32_t>(end - spec.positions.begin()));
  }
  return limits;
}

}  // namespace kvtriage
