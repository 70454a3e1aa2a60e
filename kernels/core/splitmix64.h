// splitmix64 as a random-access stream: output number `index` (from 0) of stream `seed`. The random
// scorer, the doctor's pattern and the golden inputs use it, so every backend and the NumPy
// reference draw the same numbers.
#ifndef KVTRIAGE_KERNELS_CORE_SPLITMIX64_H_
#define KVTRIAGE_KERNELS_CORE_SPLITMIX64_H_

#include <cstdint>

namespace kvtriage {

inline constexpr uint64_t SplitMix64(uint64_t seed, uint64_t index) {
  uint64_t x = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_SPLITMIX64_H_
