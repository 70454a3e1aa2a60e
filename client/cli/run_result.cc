#include "client/cli/run_result.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "kvtriage/kernels/quality.h"

namespace kvtriage::cli {
namespace {

struct Spread {
  std::optional<double> mean, p95;
};

Spread SpreadOf(const PolicyRun& run, std::vector<double> LayerRun::*values) {
  std::vector<double> all;
  for (const LayerRun& layer : run.layers) {
    // A head without a usable query row has no figure.
    std::copy_if((layer.*values).begin(), (layer.*values).end(), std::back_inserter(all),
                 [](double value) { return std::isfinite(value); });
  }
  if (all.empty()) return {};
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  return {sum / static_cast<double>(all.size()), Percentile(all, 0.95)};
}

}  // namespace

RunSummary Summarise(const PolicyRun& run) {
  const Spread window = SpreadOf(run, &LayerRun::output_error);
  const Spread future = SpreadOf(run, &LayerRun::future_output_error);
  RunSummary summary;
  summary.mass_mean = SpreadOf(run, &LayerRun::retained_mass).mean;
  summary.error_mean = window.mean;
  summary.error_p95 = window.p95;
  summary.future_mean = future.mean;
  summary.future_p95 = future.p95;
  summary.recall_mean = SpreadOf(run, &LayerRun::oracle_recall).mean;
  return summary;
}

}  // namespace kvtriage::cli
