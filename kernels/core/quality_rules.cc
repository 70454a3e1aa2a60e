#include "kernels/core/quality_rules.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/score_rules.h"

namespace kvtriage {
namespace {

HeadQuality Summarise(std::span<const RowQuality> rows) {
  HeadQuality head;
  for (const RowQuality& row : rows) {
    if (!row.usable) continue;
    head.mass_low = head.usable_rows == 0 ? row.mass : std::min(head.mass_low, row.mass);
    head.mass_mean += row.mass;
    const double error =
        std::sqrt(row.error_square) / std::max(std::sqrt(row.output_square), 1e-12);
    head.error_high = std::max(head.error_high, error);
    head.error_squares += row.error_square;
    head.output_squares += row.output_square;
    ++head.usable_rows;
  }
  if (head.usable_rows > 0) head.mass_mean /= head.usable_rows;
  return head;
}

}  // namespace

size_t MeasuredRows(const QualityRequest& request) {
  const size_t supplied = SuppliedRows(request.input);
  return request.input.row_limits.empty() ? std::min<size_t>(supplied, request.layer.sequence.rows)
                                          : supplied;
}

void SummariseRows(const QualityRequest& request, std::span<const RowQuality> rows,
                   QualityResult& result) {
  const size_t heads = request.layer.v.layout.heads, group_rows = rows.size() / heads;
  result.heads.clear();
  for (size_t head = 0; head < heads; ++head) {
    result.heads.push_back(Summarise(rows.subspan(head * group_rows, group_rows)));
  }
  // A learned sink takes a share that only it knows.
  const double least = request.input.sink_logits ? 0.0 : 0.9;
  result.lse_suspect = request.input.source == AttentionSource::kQueryOutput &&
                       std::any_of(rows.begin(), rows.end(), [&](const RowQuality& row) {
                         const bool seen = row.usable || row.total != 0;
                         return seen && !(row.total >= least && row.total <= 1.1);
                       });
}

double HeadQuality::error() const {
  return std::sqrt(error_squares / std::max(output_squares, 1e-24));
}

}  // namespace kvtriage
