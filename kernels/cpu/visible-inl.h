// Which tokens of a panel a query row sees.

#if defined(KVTRIAGE_KERNELS_CPU_VISIBLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_VISIBLE_INL_H_
#undef KVTRIAGE_KERNELS_CPU_VISIBLE_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_VISIBLE_INL_H_
#endif

#include <limits>

#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// tokens[kPanel] = begin, begin + 1, ...; bad tokens get a number that no limit reaches. True when
// there is no bad one.
HWY_INLINE bool NumberTokens(uint64_t begin, const float* bad_keys, const float* bad_values,
                             int32_t* tokens) {
  bool good = true;
  for (size_t lane = 0; lane < kPanel; ++lane) {
    const bool lane_good = bad_keys[lane] + bad_values[lane] == 0.0f;
    tokens[lane] =
        lane_good ? static_cast<int32_t>(begin + lane) : std::numeric_limits<int32_t>::max();
    good = good && lane_good;
  }
  return good;
}

// Mask of those of kLanes tokens that are in the range [first, limit) of a row.
HWY_INLINE hn::Mask<D> Visible(const int32_t* tokens, int32_t first, int32_t limit) {
  const D d;
  const DI di;
  const VI numbers = hn::Load(di, tokens);
  const auto below = hn::Lt(numbers, hn::Set(di, limit));
  return hn::RebindMask(d, hn::AndNot(hn::Lt(numbers, hn::Set(di, first)), below));
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
