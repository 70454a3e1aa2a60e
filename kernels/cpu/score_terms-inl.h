// What one (window row, token) pair adds to a score: vectors of tokens against one row.

#if defined(KVTRIAGE_KERNELS_CPU_SCORE_TERMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_SCORE_TERMS_INL_H_
#undef KVTRIAGE_KERNELS_CPU_SCORE_TERMS_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_SCORE_TERMS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/score_block-inl.h"
#include "kernels/cpu/visible-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Below this share of its two squares the expansion has lost too many digits: at 2^-8 it is off by
// about 1e-4, too near to what scores may be off in all.
constexpr float kCancelled = 0x1p-6f;

// sum over k of (c * v_k - beta * o_k)^2 for kLanes tokens, o_k = output[k * step].
HWY_NOINLINE inline V DirectSquare(const BlockTerms& b, size_t lane0, const float* output,
                                   size_t step, V c, V beta) {
  const D d;
  V even = hn::Zero(d), odd = even;
  const float* value = b.values->Get() + lane0;
  size_t k = 0;
  for (; k + 2 <= b.value_elems; k += 2, value += 2 * kPanel, output += 2 * step) {
    const V x = hn::MulSub(c, hn::Load(d, value), hn::Mul(beta, hn::Set(d, output[0])));
    const V y = hn::MulSub(c, hn::Load(d, value + kPanel), hn::Mul(beta, hn::Set(d, output[step])));
    even = hn::MulAdd(x, x, even);
    odd = hn::MulAdd(y, y, odd);
  }
  if (k < b.value_elems) {
    const V x = hn::MulSub(c, hn::Load(d, value), hn::Mul(beta, hn::Set(d, output[0])));
    even = hn::MulAdd(x, x, even);
  }
  return hn::Add(even, odd);
}

// |c v - beta o|^2 from its expansion, or directly where that cancels. Never negative.
HWY_INLINE V SquareOfDifference(const BlockTerms& b, size_t row, size_t lane0, V c, V beta) {
  const D d;
  const V cross = hn::Mul(hn::Mul(c, beta), hn::Load(d, b.dots + row * kPanel + lane0));
  const V squares = hn::MulAdd(hn::Mul(beta, beta), hn::Set(d, b.output_square[row]),
                               hn::Mul(hn::Mul(c, c), hn::Load(d, b.value_square + lane0)));
  const V result = hn::NegMulAdd(hn::Set(d, 2.0f), cross, squares);
  const auto cancelled = hn::Lt(result, hn::Mul(squares, hn::Set(d, kCancelled)));
  if (HWY_LIKELY(hn::AllFalse(d, cancelled))) return result;
  return hn::IfThenElse(cancelled, DirectSquare(b, lane0, b.output_block + row, b.rows, c, beta),
                        result);
}

// The same for c = beta = 1.
HWY_INLINE V Distance(const BlockTerms& b, size_t row, size_t lane0) {
  const D d;
  const V squares = hn::Add(hn::Load(d, b.value_square + lane0), hn::Set(d, b.output_square[row]));
  const V result =
      hn::NegMulAdd(hn::Set(d, 2.0f), hn::Load(d, b.dots + row * kPanel + lane0), squares);
  const auto cancelled = hn::Lt(result, hn::Mul(squares, hn::Set(d, kCancelled)));
  if (HWY_LIKELY(hn::AllFalse(d, cancelled))) return result;
  const V one = hn::Set(d, 1.0f);
  return hn::IfThenElse(cancelled, DirectSquare(b, lane0, b.output_block + row, b.rows, one, one),
                        result);
}

// a * b - c with one rounding, also where the processor has no such instruction.
HWY_INLINE V ExactMulSub(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, b, c);
#else
  // Both factors in halves of 12 bits, whose products are exact.
  const D d;
  const V split = hn::Set(d, 4097.0f);
  const V a_big = hn::Mul(a, split), b_big = hn::Mul(b, split);
  const V a_high = hn::Sub(a_big, hn::Sub(a_big, a)), b_high = hn::Sub(b_big, hn::Sub(b_big, b));
  const V a_low = hn::Sub(a, a_high), b_low = hn::Sub(b, b_high);
  const V product = hn::Mul(a, b);
  V rest = hn::Sub(hn::Mul(a_high, b_high), product);
  rest = hn::Add(rest, hn::Mul(a_high, b_low));
  rest = hn::Add(rest, hn::Mul(a_low, b_high));
  rest = hn::Add(rest, hn::Mul(a_low, b_low));
  return hn::Add(hn::Sub(product, c), rest);
#endif
}

// Puts 1 - A in place of `rest` where A is above a half and products were bent: float32 logits have
// lost what counts beside a log-sum-exp that does not stem from them. Few weights are so large.
HWY_NOINLINE inline V OneMinusBent(const BlockTerms& b, size_t row, size_t lane0, V weight,
                                   V rest) {
  const D d;
  HWY_ALIGN float weights[kLanes], rests[kLanes];
  hn::Store(weight, d, weights);
  hn::Store(rest, d, rests);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (!(weights[lane] > 0.5f)) continue;
    const float product = b.bent_z[row * kPanel + lane0 + lane];
    const int64_t token = static_cast<int64_t>(b.begin + lane0 + lane);
    const double logit2 =
        BentLogit2(*b.given_rule, product, b.slope2[row], token - (b.limit[row] - 1));
    const double lse2 = double{b.lse2[row]} + b.lse2_low[row];
    rests[lane] = static_cast<float>(-std::expm1((logit2 - lse2) * 0.69314718055994530942));
  }
  return hn::Load(d, rests);
}

// 1 - A, at least 1e-6. Weights above a half take it from the logit: the difference would keep only
// the rounding of A.
HWY_INLINE V OneMinusWeight(const BlockTerms& b, size_t row, size_t lane0, V product, V weight) {
  const D d;
  V rest = hn::Sub(hn::Set(d, 1.0f), weight);
  const auto near_one = hn::Gt(weight, hn::Set(d, 0.5f));
  if (b.weights == nullptr && !hn::AllFalse(d, near_one)) {
    if (b.given_rule != nullptr) {
      return hn::Max(OneMinusBent(b, row, lane0, weight, rest), hn::Set(d, 1e-6f));
    }
    const V high = ExactMulSub(product, hn::Set(d, b.scale2), hn::Set(d, b.lse2[row]));
    const V low = hn::MulSub(product, hn::Set(d, b.scale2_low), hn::Set(d, b.lse2_low[row]));
    const V y = hn::Mul(hn::Add(high, low), hn::Set(d, 0.69314718056f));
    rest = hn::IfThenElse(near_one, OneMinusExp(y), rest);
  }
  return hn::Max(rest, hn::Set(d, 1e-6f));
}

// sum + the term of the row's dominant token, in all lanes: from v - o', o' = the output without
// it, because v - o = (1 - A)(v - o').
template <Term kTerm>
HWY_NOINLINE V AddDominantTerm(const BlockTerms& b, size_t row, size_t lane0, V z, V sum) {
  const D d;
  const float rest = b.rest[row];
  V c, beta;
  float factor = 1.0f - rest;  // A
  if constexpr (kTerm == Term::kDrop) {
    c = beta = hn::Set(d, 1.0f);
    factor *= b.drop_weight[row] * rest / std::max(rest, 1e-6f);
  } else {
    beta = hn::Mul(z, hn::Set(d, rest));
    c = kTerm == Term::kJoint ? hn::Add(beta, hn::Set(d, 1.0f)) : beta;
  }
  const V square = DirectSquare(b, lane0, b.rest_output + row * b.rest_pitch, 1, c, beta);
  return hn::MulAdd(hn::Set(d, factor), hn::Mul(hn::Set(d, factor), square), sum);
}

// sum + the term of one row. `weight` and `z` are 0 where the row sees nothing.
template <Term kTerm>
HWY_INLINE V AddTerm(const BlockTerms& b, size_t row, size_t lane0, V product, V weight, V z,
                     V sum) {
  const D d;
  if constexpr (kTerm == Term::kMass) {
    return hn::Add(sum, weight);
  } else if constexpr (kTerm == Term::kValue) {
    return hn::MulAdd(weight, weight, sum);
  } else if constexpr (kTerm == Term::kKey) {
    const V factor = hn::Mul(weight, z);
    return hn::MulAdd(factor, hn::Mul(factor, Distance(b, row, lane0)), sum);
  } else if constexpr (kTerm == Term::kJoint) {
    const V square = SquareOfDifference(b, row, lane0, hn::Add(hn::Set(d, 1.0f), z), z);
    return hn::MulAdd(weight, hn::Mul(weight, square), sum);
  } else {
    const V deletable = hn::Mul(weight, hn::Set(d, b.drop_weight[row]));
    const V factor = hn::Div(deletable, OneMinusWeight(b, row, lane0, product, weight));
    return hn::MulAdd(factor, hn::Mul(factor, Distance(b, row, lane0)), sum);
  }
}

// Adds rows [from, to) of a block; kMasked where a row may not see every token of the panel, kBent
// where the products are logits already.
template <Term kTerm, bool kMasked, bool kBent>
HWY_NOINLINE void AddRows(const BlockTerms& b, size_t from, size_t to, PanelSums& sums) {
  const D d;
  const DI di;
  for (size_t lane0 = 0; lane0 < kPanel; lane0 += kLanes) {
    V segment = hn::Load(d, sums.segment + lane0), mass = hn::Load(d, sums.mass + lane0);
    for (size_t row = from; row < to; ++row) {
      const V product = hn::Load(d, b.logits + row * kPanel + lane0);
      V weight = Exp2(hn::MulSub(product, hn::Set(d, b.scale2), hn::Set(d, b.lse2[row])));
      V z;
      if constexpr (kBent && UsesLogits(kTerm)) {
        z = hn::Load(d, b.bent_z + row * kPanel + lane0);
      } else {
        z = hn::Mul(product, hn::Set(d, b.scale));
      }
      hn::Mask<D> visible;
      if constexpr (kMasked) {
        visible = Visible(b.tokens + lane0, b.first[row], b.limit[row]);
        weight = hn::IfThenElseZero(visible, weight);
        z = hn::IfThenElseZero(visible, z);
      }
      V next = AddTerm<kTerm>(b, row, lane0, product, weight, z, segment);
      if constexpr (UsesOutputs(kTerm)) {
        const uint64_t lane = static_cast<uint64_t>(b.dominant[row]) - b.begin - lane0;
        if (HWY_UNLIKELY(lane < kLanes)) {
          const auto apart = hn::RebindMask(
              d, hn::Eq(hn::Load(di, b.tokens + lane0), hn::Set(di, b.dominant[row])));
          next = hn::IfThenElse(apart, AddDominantTerm<kTerm>(b, row, lane0, z, segment), next);
        }
      }
      // Not through the products: an invisible pair may not touch the sum, not even times 0.
      if constexpr (kMasked) next = hn::IfThenElse(visible, next, segment);
      segment = next;
      if constexpr (kTerm != Term::kMass) mass = hn::Add(mass, weight);
    }
    hn::Store(segment, d, sums.segment + lane0);
    hn::Store(mass, d, sums.mass + lane0);
  }
}

// The same with weights and z given, 0 where invisible.
template <Term kTerm>
HWY_NOINLINE void AddGivenRows(const BlockTerms& b, size_t from, size_t to, PanelSums& sums) {
  const D d;
  for (size_t lane0 = 0; lane0 < kPanel; lane0 += kLanes) {
    V segment = hn::Load(d, sums.segment + lane0), mass = hn::Load(d, sums.mass + lane0);
    for (size_t row = from; row < to; ++row) {
      const V weight = hn::Load(d, b.weights + row * kPanel + lane0);
      const V z = hn::Load(d, b.logits + row * kPanel + lane0);
      const auto visible = Visible(b.tokens + lane0, b.first[row], b.limit[row]);
      segment =
          hn::IfThenElse(visible, AddTerm<kTerm>(b, row, lane0, z, weight, z, segment), segment);
      if constexpr (kTerm != Term::kMass) mass = hn::Add(mass, weight);
    }
    hn::Store(segment, d, sums.segment + lane0);
    hn::Store(mass, d, sums.mass + lane0);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
