// Fetching what is needed soon. Two things decide whether it pays: the second cache as target,
// because the first has few places for lines on their way, and few fetches at a time between other
// work, because a full queue of misses stops the processor.
#ifndef KVTRIAGE_KERNELS_CPU_PREFETCH_H_
#define KVTRIAGE_KERNELS_CPU_PREFETCH_H_

#include <cstddef>

namespace kvtriage {

// Starts to fetch the cache line of `at` into the second cache. Any address is right, also a wrong
// one.
inline void FetchSoon(const std::byte* at) { __builtin_prefetch(at, /*rw=*/0, /*locality=*/2); }

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_PREFETCH_H_
