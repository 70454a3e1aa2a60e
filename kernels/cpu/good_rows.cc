// Which rows a window row sees first: part of score_window.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/core/dtype.h"
#include "kernels/cpu/row_cursor.h"
#include "kernels/cpu/score_window.h"

namespace kvtriage {
namespace {

bool RowIsFinite(const ViewLayout& layout, const std::byte* row, float scale) {
  for (uint64_t k = 0; k < layout.row_elems; ++k) {
    const float x = LoadElement(row + k * layout.elem_stride, layout.dtype);
    if (!std::isfinite(x * scale)) return false;
  }
  return true;
}

class GoodRowFinder {
 public:
  GoodRowFinder(const ScoreRequest& request, uint32_t kv_head)
      : layer_(request.layer),
        reads_keys_(request.input.source != AttentionSource::kReady),
        reads_values_(ReadsValues(request.spec.scorer)),
        keys_(layer_.k, layer_.sequence, kv_head),
        values_(layer_.v, layer_.sequence, kv_head) {}

  // The first two good rows from `begin` on, when `rest` are those from `end` on.
  GoodRows Find(uint64_t begin, uint64_t end, GoodRows rest) {
    std::vector<uint64_t> found;
    for (uint64_t p = begin; p < end && found.size() < 2; ++p) {
      if (IsGood(p)) found.push_back(p);
    }
    if (found.size() == 2) return {found[0], found[1]};
    return found.empty() ? rest : GoodRows{found[0], rest.first};
  }

 private:
  bool IsGood(uint64_t p) {
    return (!reads_keys_ || RowIsFinite(layer_.k.layout, keys_.At(p), keys_.ScaleAt(p))) &&
           (!reads_values_ || RowIsFinite(layer_.v.layout, values_.At(p), values_.ScaleAt(p)));
  }

  const LayerRows& layer_;
  const bool reads_keys_, reads_values_;
  RowCursor keys_, values_;
};

}  // namespace

int64_t LimitOf(const ScoreRequest& request, const Window& window, size_t row) {
  const AttentionInput& input = request.input;
  const int64_t tokens = request.layer.sequence.rows;
  const int64_t limit = input.row_limits.empty() ? tokens - static_cast<int64_t>(window.rows) +
                                                       static_cast<int64_t>(row) + 1
                                                 : input.row_limits[window.first_row + row];
  return std::clamp<int64_t>(limit, 0, tokens);
}

int64_t FirstVisible(const LayerRows& layer, int64_t limit) {
  return layer.sliding_window == 0 ? 0 : std::max<int64_t>(0, limit - layer.sliding_window);
}

GoodRowsOfWindow FindGoodRows(const ScoreRequest& request, const Window& window, uint32_t kv_head) {
  const uint64_t tokens = request.layer.sequence.rows;
  GoodRowFinder finder(request, kv_head);
  const GoodRows none{tokens, tokens};
  if (request.layer.sliding_window == 0) return {finder.Find(0, tokens, none)};
  // From the last place to the first, so that no row is looked at twice.
  std::vector<uint64_t> first(window.rows);
  for (size_t row = 0; row < window.rows; ++row) {
    first[row] = static_cast<uint64_t>(FirstVisible(request.layer, LimitOf(request, window, row)));
  }
  std::vector<size_t> order(window.rows);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return first[a] > first[b]; });
  GoodRowsOfWindow good(window.rows);
  GoodRows rest = none;
  uint64_t end = tokens;
  for (const size_t row : order) {
    rest = finder.Find(first[row], end, rest);
    end = first[row];
    good[row] = rest;
  }
  return good;
}

}  // namespace kvtriage
