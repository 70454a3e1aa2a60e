// Scores that need no queries, and CriticalKV's weights, in float64 with plain loops: a second
// oracle beside the golden files. All results are [kv_heads, rows]; bad rows are NaN.
#ifndef KVTRIAGE_TESTS_SUPPORT_PLAIN_KEYS_H_
#define KVTRIAGE_TESTS_SUPPORT_PLAIN_KEYS_H_

#include <cstdint>
#include <vector>

#include "kvtriage/kernels/attention.h"

namespace kvtriage {

std::vector<double> PlainKeyNorms(const LayerRows& layer);
std::vector<double> PlainKeyDistances(const LayerRows& layer);
std::vector<double> PlainLagRanks(const LayerRows& layer, uint32_t sinks, uint32_t lag);

// Mean over the group of |projection[:, h, :] v|_1; `projection` is [hidden, q_heads, dv].
std::vector<double> PlainProjectedNorms(const LayerRows& layer, const TensorView& projection);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PLAIN_KEYS_H_
