// 64-bit arithmetic that cannot wrap. Every offset, extent product and byte count that a caller can
// influence goes through here.
#ifndef KVTRIAGE_KERNELS_CORE_CHECKED_MATH_H_
#define KVTRIAGE_KERNELS_CORE_CHECKED_MATH_H_

#include <cstdint>
#include <optional>

namespace kvtriage {

// a * b, or nothing when the product does not fit 64 bits.
inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// a + b, or nothing when the sum does not fit 64 bits.
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// Whether [offset, offset + length) lies inside [0, size). The one bounds function of the program;
// it compares by subtraction, so it cannot wrap.
inline constexpr bool RangeFits(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

// Smallest n with n * divisor >= value; divisor > 0.
inline constexpr uint64_t CeilDiv(uint64_t value, uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_CHECKED_MATH_H_
