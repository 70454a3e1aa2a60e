// Fetching what is needed soon. Two things decide whether it pays: the second cache as target,
// because the first has few places for lines on their way, and few fetches at a time between other
// work, because a full queue of misses stops the processor.
#ifndef KVTRIAGE_KERNELS_CPU_PREFETCH_H_
#define KVTRIAGE_KERNELS_CPU_PREFETCH_H_

#include <cstddef>

#include "hwy/base.h"

namespace kvtriage {

// Starts to fetch the cache line of `at`, which may be any address, into the second cache. Inlined
// always: GCC finds that a function which only prefetches has no effect, and drops its calls.
HWY_INLINE void FetchSoon(const std::byte* at) { __builtin_prefetch(at, /*rw=*/0, /*locality=*/2); }

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_PREFETCH_H_
