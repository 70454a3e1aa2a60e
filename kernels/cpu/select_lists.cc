#include "kernels/cpu/select_lists.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace kvtriage {
namespace {

std::vector<int32_t> AllRows(uint32_t rows) {
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Rows below `rows` that are not in the ascending `protect`.
std::vector<int32_t> Candidates(uint32_t rows, std::span<const int32_t> protect) {
  std::vector<int32_t> candidates;
  candidates.reserve(rows - protect.size());
  int32_t next = 0;
  for (const int32_t stop : protect) {
    for (; next < stop; ++next) candidates.push_back(next);
    next = stop + 1;
  }
  for (; next < static_cast<int32_t>(rows); ++next) candidates.push_back(next);
  return candidates;
}

std::vector<int32_t> KeepBest(std::span<const float> scores, std::span<const int32_t> protect,
                              uint32_t slots) {
  const std::vector<int32_t> candidates = Candidates(static_cast<uint32_t>(scores.size()), protect);
  const std::vector<int32_t> best = TopK(scores, candidates, slots);
  std::vector<int32_t> kept;
  kept.reserve(protect.size() + best.size());
  std::merge(protect.begin(), protect.end(), best.begin(), best.end(), std::back_inserter(kept));
  return kept;
}

// Free slots of every list of a request that drops rows.
std::vector<uint32_t> FreeSlots(const SelectRequest& request) {
  const std::span<const int32_t> protect = request.protect[0];
  if (request.adaptive_alpha.has_value()) {
    return AdaptiveCounts(request.scores, Candidates(request.rows, protect),
                          request.budget - static_cast<uint32_t>(protect.size()),
                          *request.adaptive_alpha, protect.empty() ? 1 : 0);
  }
  std::vector<uint32_t> slots;
  for (const std::span<const int32_t> set : request.protect) {
    slots.push_back(request.budget - static_cast<uint32_t>(set.size()));
  }
  return slots;
}

struct List {
  size_t request, list;
};

}  // namespace

void SelectLists(std::span<const SelectRequest> requests, ThreadTeam& team,
                 std::vector<SelectResult>& results) {
  results.assign(requests.size(), {});
  std::vector<std::vector<uint32_t>> slots(requests.size());
  team.Run(requests.size(), [&](size_t i, int) {
    const SelectRequest& request = requests[i];
    results[i].kept.resize(request.scores.size());
    if (request.scores.empty()) return;
    if (request.budget < request.rows) slots[i] = FreeSlots(request);
  });
  std::vector<List> lists;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t list = 0; list < requests[i].scores.size(); ++list) lists.push_back({i, list});
  }
  team.Run(lists.size(), [&](size_t item, int) {
    const auto [i, list] = lists[item];
    const SelectRequest& request = requests[i];
    results[i].kept[list] =
        slots[i].empty() ? AllRows(request.rows)
                         : KeepBest(request.scores[list], request.protect[list], slots[i][list]);
  });
}

}  // namespace kvtriage
