#include "service/validate/row_lists_proto.h"

#include <span>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMaxLists = uint64_t{kMaxLayersPerCache} * kMaxKvHeads;

absl::Status CheckCounts(std::span<const int32_t> counts, uint64_t indices) {
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) {
      return Error(ErrorReason::kFieldInvalid, "counts_le", "negative count").Index(i);
    }
    total += static_cast<uint64_t>(counts[i]);
  }
  if (total == indices) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, "indices_le", "not as many indices as the counts say")
      .Got(indices)
      .Limit(total);
}

Granularity ToGranularity(v1::Granularity granularity) {
  switch (granularity) {
    case v1::GRANULARITY_PER_HEAD:
      return Granularity::kPerHead;
    case v1::GRANULARITY_PER_LAYER:
      return Granularity::kPerLayer;
    default:
      return Granularity::kPerSequence;
  }
}

}  // namespace

absl::StatusOr<ExplicitRows> ParseRowLists(const v1::IndexLists& lists, uint64_t rows) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("granularity", lists.granularity(), v1::Granularity_IsValid));
  std::vector<int32_t> counts;
  std::vector<int32_t> indices;
  KVTRIAGE_RETURN_IF_ERROR(ReadInt32s("counts_le", lists.counts_le(), kMaxLists, counts));
  // Each row may stand in every list, so only the message size bounds the sum.
  KVTRIAGE_RETURN_IF_ERROR(
      ReadInt32s("indices_le", lists.indices_le(), kHardMaxRequestBytes, indices));
  if (counts.empty()) return Missing("counts_le");
  KVTRIAGE_RETURN_IF_ERROR(CheckCounts(counts, indices.size()));
  ExplicitRows result;
  result.granularity = ToGranularity(lists.granularity());
  if (result.granularity == Granularity::kPerSequence && counts.size() != 1) {
    return Error(ErrorReason::kFieldInvalid, "counts_le", "PER_SEQUENCE has one list")
        .Got(counts.size())
        .Limit(1);
  }
  result.lists.reserve(counts.size());
  size_t at = 0;
  for (const int32_t count : counts) {
    const auto list = std::span<const int32_t>(indices).subspan(at, static_cast<size_t>(count));
    KVTRIAGE_RETURN_IF_ERROR(CheckRowList("indices_le", list, rows, at));
    result.lists.emplace_back(list.begin(), list.end());
    at += list.size();
  }
  return result;
}

}  // namespace kvtriage
