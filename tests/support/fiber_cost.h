// How much a test of emulated kernels can afford in this build.
#ifndef KVTRIAGE_TESTS_SUPPORT_FIBER_COST_H_
#define KVTRIAGE_TESTS_SUPPORT_FIBER_COST_H_

#include <cstdint>

namespace kvtriage {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVTRIAGE_BUILT_FOR_TSAN 1
#elif __has_feature(address_sanitizer)
#define KVTRIAGE_BUILT_FOR_ASAN 1
#endif
#endif

// Under ThreadSanitizer an emulated thread costs half a millisecond: the smallest cases only.
#if defined(KVTRIAGE_BUILT_FOR_TSAN)
inline constexpr bool kSlowFibers = true;
#else
inline constexpr bool kSlowFibers = false;
#endif

// How many of `plain` repetitions a build runs: all, a fifth under AddressSanitizer, a tenth under
// ThreadSanitizer; at least one.
inline constexpr uint32_t Repeats(uint32_t plain) {
#if defined(KVTRIAGE_BUILT_FOR_TSAN)
  return plain < 10 ? 1 : plain / 10;
#elif defined(KVTRIAGE_BUILT_FOR_ASAN)
  return plain < 5 ? 1 : plain / 5;
#else
  return plain;
#endif
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_FIBER_COST_H_
