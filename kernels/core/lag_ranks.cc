#include "kernels/core/lag_ranks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvtriage {
namespace {

double Bounded(float deviation) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return deviation <= kLargest ? deviation : kLargest;
}

// Adds the softmax of the good rows' deviations.
void AddSoftmax(std::span<const float> deviations, std::span<const float> bad,
                std::span<double> importance) {
  double top = 0, sum = 0;
  for (size_t i = 0; i < bad.size(); ++i) {
    if (bad[i] == 0.0f) top = std::max(top, Bounded(deviations[i]));
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    if (bad[i] == 0.0f) sum += std::exp(Bounded(deviations[i]) - top);
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    if (bad[i] == 0.0f) importance[i] += std::exp(Bounded(deviations[i]) - top) / sum;
  }
}

}  // namespace

uint64_t MeasuredPartitions(uint64_t rows, uint64_t sinks, uint64_t lag) {
  return rows < sinks + 2 * lag ? 0 : (rows - sinks) / lag - 1;
}

void AddLagDefaults(uint64_t measured, std::span<float> scores) {
  for (size_t p = 0; p < scores.size(); ++p) {
    scores[p] += measured == 0 ? static_cast<float>(p) : 1.0f;
  }
}

void RankLagPartition(std::span<const float> of_keys, std::span<const float> of_values,
                      std::span<const float> bad, LagRankScratch& scratch,
                      std::span<float> scores) {
  std::vector<double>& importance = scratch.importance;
  importance.assign(bad.size(), 0.0);
  AddSoftmax(of_keys, bad, importance);
  AddSoftmax(of_values, bad, importance);
  std::vector<uint32_t>& order = scratch.order;
  order.clear();
  for (uint32_t i = 0; i < bad.size(); ++i) {
    if (bad[i] == 0.0f) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return importance[a] != importance[b] ? importance[a] < importance[b] : a > b;
  });
  for (size_t rank = 0; rank < order.size(); ++rank) {
    scores[order[rank]] = static_cast<float>(rank) / static_cast<float>(bad.size());
  }
}

}  // namespace kvtriage
