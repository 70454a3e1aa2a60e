// Element types that can be scored, and their scalar conversions to and from float32.
#ifndef KVTRIAGE_KERNELS_CORE_DTYPE_H_
#define KVTRIAGE_KERNELS_CORE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvtriage {

enum class DType : uint8_t { kF32 = 1, kF16 = 2, kBF16 = 3 };

inline constexpr uint64_t ElementBytes(DType type) { return type == DType::kF32 ? 4 : 2; }

inline constexpr const char* DTypeName(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
  }
  return "?";
}

// IEEE binary16 to float32; exact, subnormals, infinities and NaN included.
inline float F16ToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1Fu;
  const uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

// float32 to IEEE binary16, to nearest even; overflow gives infinity, NaN stays NaN.
inline uint16_t FloatToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // subnormal result: adding 0.5 aligns the mantissa and rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float BF16ToFloat(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// float32 to bfloat16, to nearest even; NaN stays NaN.
inline uint16_t FloatToBF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The element at `at` (any alignment) widened to float32.
inline float LoadElement(const std::byte* at, DType type) {
  if (type == DType::kF32) {
    float f;
    std::memcpy(&f, at, sizeof f);
    return f;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return type == DType::kF16 ? F16ToFloat(half) : BF16ToFloat(half);
}

// Stores `f`, rounded once to `type`, at `at` (any alignment).
inline void StoreElement(std::byte* at, DType type, float f) {
  if (type == DType::kF32) {
    std::memcpy(at, &f, sizeof f);
    return;
  }
  const uint16_t half = type == DType::kF16 ? FloatToF16(f) : FloatToBF16(f);
  std::memcpy(at, &half, sizeof half);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_DTYPE_H_
