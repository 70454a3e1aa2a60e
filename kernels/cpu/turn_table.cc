#include "kernels/cpu/turn_table.h"

#include <algorithm>
#include <limits>

#include "kernels/core/checked_math.h"

namespace kvtriage {
namespace {

constexpr size_t kMostTurns = 32768;  // of a slice, unless rows share them
constexpr uint32_t kMostRows = 4096, kLeastRows = 16;
constexpr int64_t kMostDistances = int64_t{1} << 22;  // that are looked up in an array
constexpr size_t kTurnsPerItem = 64;

size_t ListsOf(const RotateRequest& request) {
  return std::max<size_t>(1, request.from_rows.size());
}

}  // namespace

uint32_t TurnTable::SliceRows(const RotateRequest& request) {
  return std::clamp(static_cast<uint32_t>(kMostTurns / ListsOf(request)), kLeastRows, kMostRows);
}

TurnTable::TurnTable(const RotateRequest& request, uint32_t begin, uint32_t end, ThreadTeam& team)
    : lists_(ListsOf(request)), rows_(end - begin), floats_(request.rope->rotary_dim) {
  Number(request, begin);
  Compute(request, team);
}

void TurnTable::Number(const RotateRequest& request, uint32_t begin) {
  const bool planes = request.rope->multi_plane();
  turns_.resize(lists_ * rows_);
  ends_.reserve(turns_.size());
  int64_t nearest = std::numeric_limits<int64_t>::max();
  int64_t farthest = std::numeric_limits<int64_t>::min();
  for (size_t list = 0; list < lists_; ++list) {
    for (size_t i = 0; i < rows_; ++i) {
      const uint64_t j = begin + i;
      const uint64_t was =
          request.from_rows.empty() ? j : static_cast<uint64_t>(request.from_rows[list][j]);
      const RowPosition from = request.from.At(was, planes), to = request.to.At(j, planes);
      turns_[list * rows_ + i] = from == to ? kStays : static_cast<uint32_t>(ends_.size());
      if (from == to) continue;
      ends_.emplace_back(from, to);
      nearest = std::min(nearest, to[0] - from[0]);
      farthest = std::max(farthest, to[0] - from[0]);
    }
  }
  if (request.mode != AngleMode::kExact || planes || ends_.empty()) return;
  if (farthest - nearest >= kMostDistances) return;
  // One turn per distance.
  std::vector<uint32_t> of_distance(static_cast<size_t>(farthest - nearest + 1), kStays);
  std::vector<std::pair<RowPosition, RowPosition>> distinct;
  for (uint32_t& turn : turns_) {
    if (turn == kStays) continue;
    const auto& [from, to] = ends_[turn];
    uint32_t& number = of_distance[static_cast<size_t>(to[0] - from[0] - nearest)];
    if (number == kStays) {
      number = static_cast<uint32_t>(distinct.size());
      distinct.emplace_back(from, to);
    }
    turn = number;
  }
  ends_ = std::move(distinct);
}

void TurnTable::Compute(const RotateRequest& request, ThreadTeam& team) {
  numbers_.resize(ends_.size() * floats_);
  const size_t pairs = floats_ / 2;
  team.Run(CeilDiv(ends_.size(), kTurnsPerItem), [&](size_t item, int) {
    const size_t last = std::min(ends_.size(), (item + 1) * kTurnsPerItem);
    for (size_t turn = item * kTurnsPerItem; turn < last; ++turn) {
      float* const numbers = numbers_.data() + turn * floats_;
      TurnBetween(*request.rope, request.mode, ends_[turn].first, ends_[turn].second,
                  {numbers, pairs}, {numbers + pairs, pairs});
    }
  });
}

}  // namespace kvtriage
