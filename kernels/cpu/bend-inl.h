// Softcap and ALiBi: logits that are more than scaled products.

#if defined(KVTRIAGE_KERNELS_CPU_BEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_BEND_INL_H_
#undef KVTRIAGE_KERNELS_CPU_BEND_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_BEND_INL_H_
#endif

#include "kernels/core/logit_rule.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// The capped logit (base 2) of a product, and the z of its key term.
HWY_INLINE V CapLogit(const LogitRule& rule, V product, V& z) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  // tanh |y| = (1 - e) / (1 + e) and 1 - tanh^2 = 4 e / (1 + e)^2 with e = e^(-2|y|).
  const V u2 = hn::Mul(hn::Abs(hn::Mul(product, hn::Set(d, rule.over_cap))),
                       hn::Set(d, -2 * 1.44269504089f));
  const V e = Exp2(u2);
  const V sum = hn::Add(one, e);
  // Near 0 the difference would keep only the rounding of e.
  const V less =
      hn::IfThenElse(hn::Gt(u2, hn::Set(d, -1.0f)),
                     OneMinusExp(hn::Mul(u2, hn::Set(d, 0.69314718056f))), hn::Sub(one, e));
  const V slope = hn::Div(hn::Mul(hn::Set(d, 4.0f), e), hn::Mul(sum, sum));
  // Where the slope is no number any more, z is 0 whatever the product.
  z = hn::IfThenElseZero(hn::Gt(u2, hn::Set(d, -126.0f)),
                         hn::Mul(hn::Mul(product, hn::Set(d, rule.scale)), slope));
  const V capped = hn::CopySign(hn::Mul(hn::Set(d, rule.cap2), hn::Div(less, sum)), product);
  return hn::IfThenElse(hn::IsNaN(product), product, capped);
}

// products[kPanel] of one query row with tokens [begin, begin + kPanel) become logits in base 2; z,
// unless null, gets what enters the key term. The bias of a token is slope2 times its distance from
// `own`, the row's own index.
HWY_NOINLINE inline void BendRow(const LogitRule& rule, uint64_t begin, int32_t own, float slope2,
                                 float* products, float* z) {
  const D d;
  const DI di;
  const int32_t distance = static_cast<int32_t>(begin) - own;
  for (size_t t = 0; t < kPanel; t += kLanes) {
    const V product = hn::Load(d, products + t);
    V key_term, logit;
    if (rule.cap2 > 0) {
      logit = CapLogit(rule, product, key_term);
    } else {
      logit = hn::Mul(product, hn::Set(d, rule.scale2));
      key_term = hn::Mul(product, hn::Set(d, rule.scale));
    }
    const VI steps = hn::Iota(di, distance + static_cast<int32_t>(t));
    logit = hn::MulAdd(hn::Set(d, slope2), hn::ConvertTo(d, steps), logit);
    hn::Store(logit, d, products + t);
    if (z != nullptr) hn::Store(key_term, d, z + t);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
