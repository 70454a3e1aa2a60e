#include "service/policy/budget_rules.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

// The rows of [first, last) that are not in the ascending list `without`, ascending.
std::vector<int32_t> RowsWithout(uint32_t first, uint32_t last, std::span<const int32_t> without) {
  std::vector<int32_t> rows;
  rows.reserve(last - first);
  auto next = std::lower_bound(without.begin(), without.end(), static_cast<int32_t>(first));
  for (uint32_t row = first; row < last; ++row) {
    if (next != without.end() && *next == static_cast<int32_t>(row)) {
      ++next;
    } else {
      rows.push_back(static_cast<int32_t>(row));
    }
  }
  return rows;
}

std::vector<int32_t> Union(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> all;
  all.reserve(a.size() + b.size());
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

}  // namespace

uint32_t KeptCount(uint32_t rows, const Budget& budget) {
  if (budget.kept_tokens) return std::min(rows, *budget.kept_tokens);
  if (!budget.kept_ratio || rows == 0) return rows;
  const double product = static_cast<double>(rows) * *budget.kept_ratio;
  return std::min(rows, std::max(1u, static_cast<uint32_t>(product)));
}

uint32_t RecentRows(uint32_t rows, uint32_t budget, const Protect& protect) {
  const double product = protect.recent_share * static_cast<double>(budget);
  return std::min(rows, std::max(protect.recent, static_cast<uint32_t>(product)));
}

absl::StatusOr<ProtectedRows> ProtectRows(uint32_t rows, uint32_t budget, const Protect& protect,
                                          std::span<const int32_t> explicit_rows) {
  if (explicit_rows.size() > budget) {
    return Error(ErrorReason::kBudgetTooSmall, "protect", "more explicit rows than the budget")
        .Got(explicit_rows.size())
        .Limit(budget);
  }
  const uint32_t recent = RecentRows(rows, budget, protect);
  std::vector<int32_t> sinks = RowsWithout(0, std::min(protect.sinks, rows), explicit_rows);
  std::vector<int32_t> newest = RowsWithout(rows - recent, rows, explicit_rows);
  const size_t room = budget - explicit_rows.size();
  const size_t wanted = Union(sinks, newest).size();
  if (wanted > room) {
    // The newest row matters more than the last sink, so the window always gets one place.
    const size_t for_sinks = newest.empty() ? room : (room == 0 ? 0 : room - 1);
    sinks.resize(std::min(sinks.size(), for_sinks));
    newest = RowsWithout(rows - recent, rows, Union(explicit_rows, sinks));
    const size_t left = room - sinks.size();
    if (newest.size() > left) newest.erase(newest.begin(), newest.end() - left);
  }
  ProtectedRows result;
  result.rows = Union(Union(sinks, newest), explicit_rows);
  result.trimmed = static_cast<uint32_t>(wanted + explicit_rows.size() - result.rows.size());
  return result;
}

std::vector<int32_t> CandidateRows(uint32_t rows, std::span<const int32_t> protect) {
  return RowsWithout(0, rows, protect);
}

}  // namespace kvtriage
