// Element types that can be scored, and their scalar conversions to and from float32.
#ifndef KVTRIAGE_KERNELS_CORE_DTYPE_H_
#define KVTRIAGE_KERNELS_CORE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/core/host_device.h"

namespace kvtriage {

// fp8 as OCP defines it: e4m3 in the "fn" form without infinities, NaN is 0x7F and 0xFF.
enum class DType : uint8_t { kF32 = 1, kF16 = 2, kBF16 = 3, kF8E4M3 = 4, kF8E5M2 = 5 };

KVTRIAGE_HOST_DEVICE inline constexpr bool IsF8(DType type) {
  return type == DType::kF8E4M3 || type == DType::kF8E5M2;
}

KVTRIAGE_HOST_DEVICE inline constexpr uint64_t ElementBytes(DType type) {
  return type == DType::kF32 ? 4 : IsF8(type) ? 1 : 2;
}

inline constexpr const char* DTypeName(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "e4m3";
    case DType::kF8E5M2:
      return "e5m2";
  }
  return "?";
}

// IEEE binary16 to float32; exact, subnormals, infinities and NaN included.
KVTRIAGE_HOST_DEVICE inline float F16ToFloat(uint16_t h) {
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
KVTRIAGE_HOST_DEVICE inline uint16_t FloatToF16(float f) {
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

KVTRIAGE_HOST_DEVICE inline float BF16ToFloat(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// float32 to bfloat16, to nearest even; NaN stays NaN.
KVTRIAGE_HOST_DEVICE inline uint16_t FloatToBF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// e4m3 to float32; exact, subnormals and NaN included.
KVTRIAGE_HOST_DEVICE inline float E4M3ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  // The product moves the exponent and normalises subnormals.
  const float moved = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(moved) | sign);
}

// e5m2 is the upper half of binary16.
KVTRIAGE_HOST_DEVICE inline float E5M2ToFloat(uint8_t code) {
  return F16ToFloat(static_cast<uint16_t>(code << 8));
}

KVTRIAGE_HOST_DEVICE inline float F8ToFloat(uint8_t code, DType type) {
  return type == DType::kF8E4M3 ? E4M3ToFloat(code) : E5M2ToFloat(code);
}

// float32 to fp8 with `kMantissa` bits of mantissa and exponents from 2^kLeast on, to nearest even;
// what is too large, infinities included, becomes the largest number. NaN is `kNaN`.
template <int kMantissa, int kLeast, uint8_t kLargest, uint8_t kNaN>
KVTRIAGE_HOST_DEVICE inline uint8_t FloatToF8(float f) {
  constexpr int kCut = 23 - kMantissa;  // bits of the mantissa that go
  constexpr uint32_t kLeastBits = static_cast<uint32_t>(127 + kLeast) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint8_t sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | kNaN);
  uint32_t code = 0;
  if (magnitude < kLeastBits) {  // subnormal: adding 2^(kLeast + kCut) aligns the mantissa, rounds
    constexpr uint32_t kAlign = static_cast<uint32_t>(127 + kLeast + kCut) << 23;
    const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAlign);
    code = std::bit_cast<uint32_t>(aligned) - kAlign;
  } else {
    const uint32_t rounded = magnitude + ((1u << (kCut - 1)) - 1) + ((magnitude >> kCut) & 1u);
    code = (rounded - (kLeastBits - (1u << 23))) >> kCut;
  }
  return static_cast<uint8_t>(sign | (code > kLargest ? kLargest : code));
}

KVTRIAGE_HOST_DEVICE inline uint8_t FloatToE4M3(float f) { return FloatToF8<3, -6, 0x7E, 0x7F>(f); }
KVTRIAGE_HOST_DEVICE inline uint8_t FloatToE5M2(float f) {
  return FloatToF8<2, -14, 0x7B, 0x7E>(f);
}

// The element at `at` (any alignment) widened to float32; of fp8 the bare code, without a scale.
inline float LoadElement(const std::byte* at, DType type) {
  if (IsF8(type)) return F8ToFloat(std::to_integer<uint8_t>(*at), type);
  if (type == DType::kF32) {
    float f;
    std::memcpy(&f, at, sizeof f);
    return f;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return type == DType::kF16 ? F16ToFloat(half) : BF16ToFloat(half);
}

// Stores `f`, rounded once to `type`, at `at` (any alignment). fp8 saturates.
inline void StoreElement(std::byte* at, DType type, float f) {
  if (IsF8(type)) {
    *at = std::byte{type == DType::kF8E4M3 ? FloatToE4M3(f) : FloatToE5M2(f)};
    return;
  }
  if (type == DType::kF32) {
    std::memcpy(at, &f, sizeof f);
    return;
  }
  const uint16_t half = type == DType::kF16 ? FloatToF16(f) : FloatToBF16(f);
  std::memcpy(at, &half, sizeof half);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_DTYPE_H_
