#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kvtriage/kernels/divergence.h"
#include "kvtriage/kernels/select.h"

namespace kvtriage {
namespace {

uint32_t CountOf(std::span<const float> divergence, const HkvdSpec& spec) {
  if (spec.ratio.has_value()) {
    const double wanted = std::trunc(static_cast<double>(spec.base) * *spec.ratio);
    return static_cast<uint32_t>(std::min(wanted, static_cast<double>(divergence.size())));
  }
  const double threshold = spec.threshold.value_or(std::numeric_limits<double>::infinity());
  return static_cast<uint32_t>(std::count_if(divergence.begin(), divergence.end(), [&](float x) {
    return static_cast<double>(x) > threshold;
  }));
}

}  // namespace

HkvdResult SelectHkvd(std::span<const int32_t> candidates, std::span<const float> divergence,
                      const HkvdSpec& spec) {
  HkvdResult result;
  const std::vector<int32_t> chosen = TopK(divergence, CountOf(divergence, spec));
  double total = 0, taken = 0;
  float last = std::numeric_limits<float>::infinity(), next = 0;
  size_t j = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    total += divergence[i];
    if (j < chosen.size() && chosen[j] == static_cast<int32_t>(i)) {
      result.rows.push_back(candidates[i]);
      taken += divergence[i];
      last = std::min(last, divergence[i]);
      ++j;
    } else {
      next = std::max(next, divergence[i]);
    }
  }
  if (!chosen.empty() && last > 0) {
    result.gap = static_cast<double>(next) / static_cast<double>(last);
  }
  if (total > 0) result.divergence_share = taken / total;
  return result;
}

}  // namespace kvtriage
