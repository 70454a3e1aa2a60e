// The tile that the scoring kernels of one instruction set work in: kTileRows query rows against a
// panel of kPanelVectors vectors of tokens. All products of a tile stay in registers.

#if defined(KVTRIAGE_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_TILE_INL_H_
#undef KVTRIAGE_KERNELS_CPU_TILE_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;

constexpr size_t kLanes = hn::MaxLanes(D());

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
// 24 accumulators, 3 vectors of the panel and a broadcast of 32 registers.
constexpr size_t kTileRows = 8, kPanelVectors = 3;
#elif HWY_TARGET == HWY_AVX2
// 12, 3 and 1 of 16 registers.
constexpr size_t kTileRows = 4, kPanelVectors = 3;
#else
// Without fused multiply-add a product needs a register of its own.
constexpr size_t kTileRows = 4, kPanelVectors = 2;
#endif

constexpr size_t kPanel = kPanelVectors * kLanes;  // tokens of a panel

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
