// Copies that go past the caches, once per instruction set.
#if defined(KVTRIAGE_KERNELS_CPU_STREAM_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_STREAM_COPY_INL_H_
#undef KVTRIAGE_KERNELS_CPU_STREAM_COPY_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_STREAM_COPY_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {  // names must not meet those of other operations
namespace hn = hwy::HWY_NAMESPACE;

// `bytes` is a multiple of 64 and `to` is aligned to 64. No byte of `from` is one of `to`.
HWY_INLINE void StreamBytes(const std::byte* from, std::byte* to, size_t bytes) {
  const hn::CappedTag<uint64_t, 8> d;
  const auto* source = reinterpret_cast<const uint64_t*>(from);
  auto* target = reinterpret_cast<uint64_t*>(to);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); i += hn::Lanes(d)) {
    hn::Stream(hn::LoadU(d, source + i), d, target + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // KVTRIAGE_KERNELS_CPU_STREAM_COPY_INL_H_
