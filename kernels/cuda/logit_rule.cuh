// Logits of (row, token) pairs, by the rule of kernels/core/logit_rule.h.
#ifndef KVTRIAGE_KERNELS_CUDA_LOGIT_RULE_CUH_
#define KVTRIAGE_KERNELS_CUDA_LOGIT_RULE_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/core/logit_rule.h"
#include "kernels/cuda/query_rows_launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr float kLn2 = 0.69314718056f;

// 1 - e^y for y <= 0, without what the difference would lose near 0.
SIMT_DEVICE float OneMinusExp(float y) {
  if (y < -0.7f) return 1.0f - simt::Exp2Approx(y * 1.44269504089f);
  float series = 1.0f;
  SIMT_UNROLL
  for (int n = 10; n >= 2; --n)
    series = simt::Fma(y * (1.0f / static_cast<float>(n)), series, 1.0f);
  return -y * series;
}

// What a product gives: the logit that enters the softmax in base 2, and the z of the key term.
struct PairLogit {
  float logit2, z;
};

SIMT_DEVICE PairLogit CappedLogit(const LogitRule& rule, float product) {
  // tanh |y| = (1 - e) / (1 + e) and 1 - tanh^2 = 4 e / (1 + e)^2 with e = e^(-2|y|).
  const float y = product * rule.over_cap;
  const float u2 = (y < 0 ? y : -y) * (2 * 1.44269504089f);
  const float e = simt::Exp2Approx(u2), sum = 1.0f + e;
  const float less = u2 > -1.0f ? OneMinusExp(u2 * kLn2) : 1.0f - e;
  const float slope = 4.0f * e / (sum * sum);
  const float capped = rule.cap2 * (less / sum);
  return {product != product ? product : (product < 0 ? -capped : capped),
          u2 > -126.0f ? product * rule.scale * slope : 0.0f};
}

// Of a pair whose rule is not plain.
SIMT_DEVICE PairLogit BentLogit(const LogitRule& rule, const QueryRow& row, uint32_t token,
                                float product) {
  PairLogit pair = rule.cap2 > 0 ? CappedLogit(rule, product)
                                 : PairLogit{product * rule.scale2, product * rule.scale};
  const int64_t distance = static_cast<int64_t>(token) - (row.limit - 1);
  pair.logit2 = simt::Fma(row.slope2, static_cast<float>(distance), pair.logit2);
  return pair;
}

SIMT_DEVICE float Logit2(const LogitRule& rule, const QueryRow& row, uint32_t token,
                         float product) {
  return rule.plain ? product * rule.scale2 : BentLogit(rule, row, token, product).logit2;
}

// A of a pair that the row sees.
SIMT_DEVICE float PairWeight(const LogitRule& rule, const QueryRow& row, uint32_t token,
                             float product) {
  if (rule.plain) return simt::Exp2Approx(simt::Fma(product, rule.scale2, -row.lse2));
  return simt::Exp2Approx(BentLogit(rule, row, token, product).logit2 - row.lse2);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_LOGIT_RULE_CUH_
