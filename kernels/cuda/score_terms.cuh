// What one (row, token) pair adds to a score: the four-in-one formula of kvtriage/kernels/score.h.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_TERMS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_TERMS_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.cuh"

namespace kvtriage {

// Below this share of its two squares the expansion |v|^2 - 2 v.o + |o|^2 has lost too many digits.
inline constexpr float kCancelled = 0x1p-6f;

constexpr bool UsesOutputs(ScoreTerm term) { return term >= ScoreTerm::kKey; }

// One token's V in a tile, and |v|^2.
struct TokenValue {
  const simt::Shared<float>* tile;
  uint32_t base, elems;
  float square;
};

// A row's O, and |o|^2.
struct RowOutput {
  const float* elems;
  float square;
};

// sum over k of (c v_k - beta o_k)^2.
SIMT_DEVICE float DirectSquare(const TokenValue& value, const float* output, float c, float beta) {
  float sum = 0;
  for (uint32_t k = 0; k < value.elems; ++k) {
    const float x = simt::Fma(c, (*value.tile)[value.base + k], -(beta * simt::Load(output + k)));
    sum = simt::Fma(x, x, sum);
  }
  return sum;
}

// |c v - beta o|^2 from its expansion, or directly where that cancels. Never negative.
SIMT_DEVICE float SquareOfDifference(const TokenValue& value, const RowOutput& output, float dot,
                                     float c, float beta) {
  const float squares = simt::Fma(beta * beta, output.square, c * c * value.square);
  const float result = simt::Fma(-2.0f * (c * beta), dot, squares);
  if (!(result < squares * kCancelled)) return result;
  return DirectSquare(value, output.elems, c, beta);
}

// 1 - A, for a weight above a half and a plain logit: from the logit, since the difference would
// keep only the rounding of A.
SIMT_DEVICE float PlainRest(const LogitRule& rule, const QueryRow& row, float product) {
  const float high = simt::Fma(product, rule.scale2, -row.lse2);
  const float low = simt::Fma(product, rule.scale2_low, -row.lse2_low);
  return OneMinusExp((high + low) * kLn2);
}

// The same for a logit that is bent.
SIMT_DEVICE float BentRest(const LogitRule& rule, const QueryRow& row, uint32_t token,
                           float product) {
  double logit = static_cast<double>(product) * rule.scale;
  if (rule.softcap > 0) logit = rule.softcap * tanh(logit / rule.softcap);
  const auto distance = static_cast<double>(static_cast<int64_t>(token) - (row.limit - 1));
  const double logit2 = logit * kLog2E + row.slope2 * distance;
  const double lse2 = static_cast<double>(row.lse2) + row.lse2_low;
  return static_cast<float>(-expm1((logit2 - lse2) * 0.69314718055994530942));
}

SIMT_DEVICE float AtLeastMillionth(float rest) { return rest < 1e-6f ? 1e-6f : rest; }

// 1 - A of a pair whose logit came from a product, at least 1e-6.
SIMT_DEVICE float OneMinusWeight(const LogitRule& rule, const QueryRow& row, uint32_t token,
                                 float product, float weight) {
  if (!(weight > 0.5f)) return 1.0f - weight;
  return AtLeastMillionth(rule.plain ? PlainRest(rule, row, product)
                                     : BentRest(rule, row, token, product));
}

// The term of a row's dominant token, from v - o', o' = the output without it, because
// v - o = (1 - A)(v - o').
template <ScoreTerm kTerm>
SIMT_DEVICE float DominantTerm(const QueryRow& row, const float* rest_output,
                               const TokenValue& value, float z) {
  float c = 1, beta = 1, factor = 1.0f - row.rest;  // A
  if constexpr (kTerm == ScoreTerm::kDrop) {
    factor *= row.drop_weight * row.rest / (row.rest < 1e-6f ? 1e-6f : row.rest);
  } else {
    beta = z * row.rest;
    c = kTerm == ScoreTerm::kJoint ? beta + 1.0f : beta;
  }
  return factor * factor * DirectSquare(value, rest_output, c, beta);
}

// sum + the term of one pair that the row sees. `rest` is 1 - A for kDrop.
template <ScoreTerm kTerm>
SIMT_DEVICE float AddTerm(const QueryRow& row, const TokenValue& value, const RowOutput& output,
                          float dot, float weight, float z, float rest, float sum) {
  if constexpr (kTerm == ScoreTerm::kMass) {
    return sum + weight;
  } else if constexpr (kTerm == ScoreTerm::kValue) {
    return simt::Fma(weight, weight, sum);
  } else if constexpr (kTerm == ScoreTerm::kKey) {
    const float factor = weight * z;
    return simt::Fma(factor, factor * SquareOfDifference(value, output, dot, 1, 1), sum);
  } else if constexpr (kTerm == ScoreTerm::kJoint) {
    const float square = SquareOfDifference(value, output, dot, 1.0f + z, z);
    return simt::Fma(weight, weight * square, sum);
  } else {
    const float factor = weight * row.drop_weight / rest;
    return simt::Fma(factor, factor * SquareOfDifference(value, output, dot, 1, 1), sum);
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_TERMS_CUH_
