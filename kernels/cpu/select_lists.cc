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

std::vector<int32_t> Merged(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> rows;
  rows.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rows));
  return rows;
}

std::vector<int32_t> KeepBest(std::span<const float> scores, std::span<const int32_t> protect,
                              uint32_t slots) {
  const std::vector<int32_t> candidates = Candidates(static_cast<uint32_t>(scores.size()), protect);
  return Merged(protect, TopK(scores, candidates, slots));
}

// Of `slots` free slots, those that the first stage fills.
uint32_t FirstStage(uint32_t slots, double share) {
  if (share <= 0 || slots == 0) return 0;
  const auto part = static_cast<uint32_t>(slots * share);
  return std::min(slots, std::max(1u, part));
}

// The rest of the slots goes to the best by the second scores among the rows that are left.
std::vector<int32_t> KeepBestInTwoStages(std::span<const float> scores,
                                         std::span<const float> second_scores,
                                         std::span<const int32_t> protect, uint32_t slots,
                                         double share) {
  const uint32_t first = FirstStage(slots, share);
  const std::vector<int32_t> taken = KeepBest(scores, protect, first);
  return KeepBest(second_scores, taken, slots - first);
}

// Free slots of every list; the rest of the rows when a list keeps all.
std::vector<uint32_t> FreeSlots(const SelectRequest& request) {
  const std::span<const int32_t> protect = request.protect[0];
  if (request.adaptive_alpha.has_value()) {
    return AdaptiveCounts(request.scores, Candidates(request.rows, protect),
                          request.budget - static_cast<uint32_t>(protect.size()),
                          *request.adaptive_alpha, protect.empty() ? 1 : 0);
  }
  std::vector<uint32_t> slots;
  for (size_t list = 0; list < request.protect.size(); ++list) {
    const uint32_t budget = std::min(request.BudgetOf(list), request.rows);
    slots.push_back(budget - static_cast<uint32_t>(request.protect[list].size()));
  }
  return slots;
}

// Counts what the stages chose in the lists that drop rows.
void CountStages(const SelectRequest& request, const std::vector<uint32_t>& slots,
                 SelectResult& result) {
  for (size_t list = 0; list < request.second_scores.size(); ++list) {
    const uint32_t all = request.rows - static_cast<uint32_t>(request.protect[list].size());
    const uint32_t chosen = slots.empty() ? all : slots[list];
    if (chosen == all) continue;
    const uint32_t first = FirstStage(chosen, request.first_stage);
    result.stage1 += first;
    result.stage2 += chosen - first;
  }
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
    // With adaptive shares a budget of all rows leaves nothing to share.
    if (!request.list_budgets.empty() || request.budget < request.rows) {
      slots[i] = FreeSlots(request);
    }
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
