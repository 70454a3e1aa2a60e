#include "kernels/core/select_rules.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/share_out.h"

namespace kvtriage {
namespace {

bool KeepsAll(const SelectRequest& request) {
  // With adaptive shares a budget of all rows leaves nothing to share.
  return request.list_budgets.empty() && request.budget >= request.rows;
}

}  // namespace

uint32_t FirstStageSlots(uint32_t slots, double share) {
  if (share <= 0 || slots == 0) return 0;
  const auto part = static_cast<uint32_t>(slots * share);
  return std::min(slots, std::max(1u, part));
}

std::vector<uint32_t> AdaptiveShares(std::span<const uint64_t> counts, uint32_t slots, double alpha,
                                     uint32_t least, uint32_t candidates) {
  constexpr uint64_t kOne = 65536;  // alpha in whole 1/65536 makes the shares exact
  const auto safe = static_cast<uint64_t>(std::ceil(alpha * static_cast<double>(kOne)));
  std::vector<uint64_t> num(counts.size());
  for (size_t head = 0; head < counts.size(); ++head) {
    num[head] = safe * slots + (kOne - safe) * counts[head];
  }
  return ShareOut(num, kOne, counts.size() * uint64_t{slots}, least, candidates);
}

std::optional<AdaptiveQuestion> AdaptiveOf(const SelectRequest& request) {
  if (!request.adaptive_alpha || request.scores.empty() || KeepsAll(request)) return std::nullopt;
  const std::span<const int32_t> protect = request.protect[0];
  return AdaptiveQuestion{request.budget - static_cast<uint32_t>(protect.size()),
                          protect.empty() ? 1u : 0u};
}

std::vector<uint32_t> FreeSlots(const SelectRequest& request, std::span<const uint32_t> shares) {
  if (request.scores.empty() || KeepsAll(request)) return {};
  if (request.adaptive_alpha) return {shares.begin(), shares.end()};
  std::vector<uint32_t> slots;
  for (size_t list = 0; list < request.protect.size(); ++list) {
    const uint32_t budget = std::min(request.BudgetOf(list), request.rows);
    slots.push_back(budget - static_cast<uint32_t>(request.protect[list].size()));
  }
  return slots;
}

std::vector<int32_t> Unprotected(uint32_t rows, std::span<const int32_t> protect) {
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

void CountStages(const SelectRequest& request, std::span<const uint32_t> slots,
                 SelectResult& result) {
  for (size_t list = 0; list < request.second_scores.size(); ++list) {
    const uint32_t all = request.rows - static_cast<uint32_t>(request.protect[list].size());
    const uint32_t chosen = slots.empty() ? all : slots[list];
    if (chosen == all) continue;
    const uint32_t first = FirstStageSlots(chosen, request.first_stage);
    result.stage1 += first;
    result.stage2 += chosen - first;
  }
}

}  // namespace kvtriage
