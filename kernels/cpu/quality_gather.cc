#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/core/logit_rule.h"
#include "kernels/cpu/quality_rows.h"
#include "kernels/cpu/query_turner.h"
#include "kernels/cpu/score_window.h"

namespace kvtriage {
namespace {

constexpr double kLog2E = 1.4426950408889634074;
constexpr double kNoSink = -std::numeric_limits<double>::infinity();

// Appends one row of a tensor as float32; takes it back and returns false when it is not finite.
bool AppendRow(const TensorView& tensor, uint64_t row, uint64_t head, std::vector<float>& out) {
  const size_t before = out.size();
  for (uint32_t k = 0; k < tensor.elems; ++k) {
    const float x = LoadElement(tensor.At(row, head, k), tensor.dtype);
    if (!std::isfinite(x)) {
      out.resize(before);
      return false;
    }
    out.push_back(x);
  }
  return true;
}

}  // namespace

void GatherQualityRows(const QualityTask& task, QualityRows& rows) {
  const AttentionInput& input = task.request.input;
  const bool ready = input.source == AttentionSource::kReady;
  const bool given = input.source == AttentionSource::kQueryOutput;
  const int64_t tokens = task.request.layer.sequence.rows;
  const size_t supplied = ready ? input.a.rows : input.q.rows;
  const size_t group = task.request.layer.q_heads / task.request.kept.size();
  rows = QualityRows();
  QueryTurner turner(input.rotation);
  for (size_t n = task.begin; n < task.end; ++n) {
    const size_t i = n % task.rows, row = supplied - task.rows + i;
    const size_t head = task.kv_head * group + n / task.rows;
    const int64_t own = tokens - static_cast<int64_t>(task.rows) + static_cast<int64_t>(i) + 1;
    const int64_t limit = input.row_limits.empty() ? own : int64_t{input.row_limits[row]};
    if (limit <= 0) continue;
    double lse2 = 0;
    if (given) {
      const double lse = LoadElement(input.lse.At(row, head, 0), input.lse.dtype);
      if (!std::isfinite(lse)) continue;
      lse2 = input.lse_base == LseBase::k2 ? lse : lse * kLog2E;
    }
    const auto query_head = static_cast<uint32_t>(head);
    const float slope2 = ready ? 0.0f : AlibiSlope2(input, query_head);
    const double sink2 = ready ? kNoSink : SinkLogit2(input, query_head);
    if (!std::isfinite(slope2) || !(sink2 < -kNoSink)) continue;
    const size_t q_before = rows.q.size();
    if (!ready && !AppendRow(input.q, row, head, rows.q)) continue;
    if (!ready) turner.Turn(row, rows.q.data() + q_before);
    if ((given || ready) && input.o && !AppendRow(input.o, row, head, rows.o)) {
      rows.q.resize(q_before);
      continue;
    }
    rows.number.push_back(n - task.begin);
    rows.head.push_back(static_cast<uint32_t>(head));
    rows.row.push_back(static_cast<uint32_t>(row));
    const int64_t seen = std::min(limit, tokens);
    rows.first.push_back(static_cast<int32_t>(FirstVisible(task.request.layer, seen)));
    rows.limit.push_back(static_cast<int32_t>(seen));
    rows.lse2.push_back(lse2);
    rows.slope2.push_back(slope2);
    rows.sink2.push_back(sink2);
  }
}

}  // namespace kvtriage
