#include "kernels/cpu/select_lists.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "kernels/core/select_rules.h"

namespace kvtriage {
namespace {

std::vector<int32_t> AllRows(uint32_t rows) {
  std::vector<int32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int32_t> Merged(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> rows;
  rows.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rows));
  return rows;
}

std::vector<int32_t> KeepBest(std::span<const float> scores, std::span<const int32_t> protect,
                              uint32_t slots) {
  const std::vector<int32_t> candidates =
      Unprotected(static_cast<uint32_t>(scores.size()), protect);
  return Merged(protect, TopK(scores, candidates, slots));
}

// The rest of the slots goes to the best by the second scores among the rows that are left.
std::vector<int32_t> KeepBestInTwoStages(std::span<const float> scores,
                                         std::span<const float> second_scores,
                                         std::span<const int32_t> protect, uint32_t slots,
                                         double share) {
  const uint32_t first = FirstStageSlots(slots, share);
  const std::vector<int32_t> taken = KeepBest(scores, protect, first);
  return KeepBest(second_scores, taken, slots - first);
}

std::vector<uint32_t> SlotsOf(const SelectRequest& request) {
  std::vector<uint32_t> shares;
  if (const std::optional<AdaptiveQuestion> question = AdaptiveOf(request)) {
    shares = AdaptiveCounts(request.scores, Unprotected(request.rows, request.protect[0]),
                            question->slots, *request.adaptive_alpha, question->least);
  }
  return FreeSlots(request, shares);
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
    slots[i] = SlotsOf(request);
    CountStages(request, slots[i], results[i]);
  });
  std::vector<List> lists;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t list = 0; list < requests[i].scores.size(); ++list) lists.push_back({i, list});
  }
  team.Run(lists.size(), [&](size_t item, int) {
    const auto [i, list] = lists[item];
    const SelectRequest& request = requests[i];
    std::vector<int32_t>& kept = results[i].kept[list];
    if (slots[i].empty()) {
      kept = AllRows(request.rows);
    } else if (request.second_scores.empty()) {
      kept = KeepBest(request.scores[list], request.protect[list], slots[i][list]);
    } else {
      kept = KeepBestInTwoStages(request.scores[list], request.second_scores[list],
                                 request.protect[list], slots[i][list], request.first_stage);
    }
  });
}

}  // namespace kvtriage
