// Counting rules: how many rows a budget keeps and which rows are protected.
#ifndef KVTRIAGE_SERVICE_POLICY_BUDGET_RULES_H_
#define KVTRIAGE_SERVICE_POLICY_BUDGET_RULES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "service/policy/policy.h"

namespace kvtriage {

// b of an amount for a sequence of `rows` rows: min(rows, kept_tokens), or min(rows, max(1,
// trunc(rows * kept_ratio))) with one IEEE double product. 0 for rows = 0; all rows without an
// amount.
uint32_t KeptCount(uint32_t rows, const Budget& budget);

// max(recent, trunc(recent_share * b)), at most `rows`.
uint32_t RecentRows(uint32_t rows, uint32_t budget, const Protect& protect);

struct ProtectedRows {
  std::vector<int32_t> rows;  // ascending, at most b
  uint32_t trimmed = 0;       // protected rows that did not fit
};

// Union of sinks, recent window and explicit rows (ascending, unique, in range), trimmed to b:
// explicit rows always stay; sinks keep their first min(s, room - 1) rows if there is a recent
// window, else min(s, room); the newest recent rows fill the rest. More explicit rows than b:
// BUDGET_TOO_SMALL.
absl::StatusOr<ProtectedRows> ProtectRows(uint32_t rows, uint32_t budget, const Protect& protect,
                                          std::span<const int32_t> explicit_rows);

// The rows of [0, rows) that are not in `protect` (ascending), ascending.
std::vector<int32_t> CandidateRows(uint32_t rows, std::span<const int32_t> protect);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_BUDGET_RULES_H_
