#include "kernels/cpu/quality.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/checked_math.h"
#include "kernels/core/quality_rules.h"
#include "kernels/cpu/quality_rows.h"
#include "kernels/cpu/rank_cut.h"

namespace kvtriage {
namespace {

// Rows of one piece of work: they share one read of K and V.
constexpr size_t kTaskRows = 64;

}  // namespace

void MeasureLayer(const QualityRequest& request, ThreadTeam& team, QualityResult& result) {
  const uint32_t heads = request.layer.v.layout.heads;
  const size_t rows = MeasuredRows(request);
  const size_t group_rows = rows * (request.layer.q_heads / heads);
  const size_t tasks = CeilDiv(group_rows, kTaskRows);
  std::vector<RowQuality> measured(heads * group_rows);
  std::vector<QualityScratch> scratch(static_cast<size_t>(team.threads()));
  team.Run(heads * tasks, [&](size_t item, int worker) {
    const size_t head = item / tasks, begin = item % tasks * kTaskRows;
    const QualityTask task{request, static_cast<uint32_t>(head), rows, begin,
                           std::min(begin + kTaskRows, group_rows)};
    MeasureRows(task, scratch[static_cast<size_t>(worker)], &measured[head * group_rows + begin]);
  });
  SummariseRows(request, measured, result);
}

double OracleRecall(std::span<const float> oracle, std::span<const int32_t> candidates,
                    std::span<const int32_t> chosen) {
  if (chosen.empty()) return 1;
  std::vector<float> scores;
  scores.reserve(candidates.size());
  for (const int32_t row : candidates) scores.push_back(oracle[static_cast<size_t>(row)]);
  const std::span<const float> list = scores;
  const RankCut cut = FindRankCut({&list, 1}, chosen.size());
  size_t above = 0, equal = 0;
  for (const int32_t row : chosen) {
    const uint32_t key = RankKey(oracle[static_cast<size_t>(row)]);
    above += key > cut.key ? 1 : 0;
    equal += key == cut.key ? 1 : 0;
  }
  return static_cast<double>(above + std::min(equal, cut.ties)) /
         static_cast<double>(chosen.size());
}

double Percentile(std::vector<double> values, double q) {
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  const size_t place = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  const auto entry = values.begin() + static_cast<ptrdiff_t>(std::min(place, values.size() - 1));
  std::nth_element(values.begin(), entry, values.end());
  return *entry;
}

}  // namespace kvtriage
