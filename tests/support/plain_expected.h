// Expected Attention in float64 with plain loops: a second oracle beside the golden files.
#ifndef KVTRIAGE_TESTS_SUPPORT_PLAIN_EXPECTED_H_
#define KVTRIAGE_TESTS_SUPPORT_PLAIN_EXPECTED_H_

#include <cstdint>
#include <vector>

#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Mean [Hq][dk] and biased covariance [Hq][dk][dk] of rows [first, rows) of `queries`.
struct PlainMoments {
  std::vector<double> mean, covariance;
};
PlainMoments PlainQueryMoments(const TensorView& queries, uint32_t first);

// [kv_heads, rows]; bad rows are NaN. The moments are those of the queries before RoPE.
std::vector<double> PlainExpectedScores(const ScoreRequest& request, const PlainMoments& moments);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PLAIN_EXPECTED_H_
