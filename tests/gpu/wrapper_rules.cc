#include "tests/gpu/wrapper_rules.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/core/dtype.h"

namespace kvtriage::gpu {
namespace {

constexpr uint32_t kM = 16, kN = 8, kK = 16;

// Which lane and which of its elements hold element (row, col) of a fragment. Elements of a
// register pair are numbered one after the other: element e is half e % 2 of register e / 2.
struct Place {
  uint32_t lane, element;
};

// "groupID = laneid >> 2, threadID_in_group = laneid % 4; row = groupID for a0 a1 a4 a5, groupID +
// 8 else; col = threadID_in_group * 2 + (i & 1) for a0..a3, + 8 for a4..a7", solved for the place.
Place PlaceInA(uint32_t row, uint32_t col) {
  return {.lane = row % 8 * 4 + col % 8 / 2,
          .element = col % 2 + (row >= 8 ? 2 : 0) + (col >= 8 ? 4 : 0)};
}
// "row = threadID_in_group * 2 + (i & 1) for b0 b1, + 8 for b2 b3; col = groupID"
Place PlaceInB(uint32_t row, uint32_t col) {
  return {.lane = col * 4 + row % 8 / 2, .element = row % 2 + (row >= 8 ? 2 : 0)};
}
// "row = groupID for c0 c1, groupID + 8 for c2 c3; col = threadID_in_group * 2 + (i & 1)"
Place PlaceInC(uint32_t row, uint32_t col) {
  return {.lane = row % 8 * 4 + col / 2, .element = col % 2 + (row >= 8 ? 2 : 0)};
}

int NumberInA(uint32_t row, uint32_t col) {
  return static_cast<int>((row * 31 + col * 17) % 15) - 7;
}
int NumberInB(uint32_t row, uint32_t col) {
  return static_cast<int>((row * 13 + col * 29) % 11) - 5;
}
int NumberInC(uint32_t row, uint32_t col) { return static_cast<int>(row * 8 + col) * 3; }

template <size_t kRegisters>
void PutHalf(uint32_t (&to)[32][kRegisters], Place at, uint16_t bits) {
  to[at.lane][at.element / 2] |= uint32_t{bits} << (16 * (at.element % 2));
}

uint32_t Exp2Rounded(uint32_t bits) {
  const double right = std::exp2(double{std::bit_cast<float>(bits)});
  return std::bit_cast<uint32_t>(right < 0x1p-126 ? 0.0f : static_cast<float>(right));
}

// Matrix m is rows 8m .. 8m+7 of 16 bytes; "row and column" of lane l: l / 4, and l % 4 * 2 and the
// next; transposed: the matrix is loaded in column-major format.
void FillMatrices(uint32_t (&to)[32][4], uint32_t matrices, bool transposed) {
  for (uint32_t m = 0; m < matrices; ++m) {
    for (uint32_t row = 0; row < 8; ++row) {
      for (uint32_t col = 0; col < 8; ++col) {
        const uint32_t number = transposed ? m * 64 + col * 8 + row : m * 64 + row * 8 + col;
        to[row * 4 + col / 2][m] |= number << (16 * (col % 2));
      }
    }
  }
}

uint32_t UlpsApart(uint32_t a, uint32_t b) { return a > b ? a - b : b - a; }

std::string At(const char* what, size_t i, uint32_t got, uint32_t want) {
  char line[120];
  std::snprintf(line, sizeof line, "%s, word %zu: %08x, should be %08x", what, i, got, want);
  return line;
}

template <class Words>
std::string Compare(const char* what, const Words& got, const Words& want, uint32_t ulps = 0) {
  const auto* a = reinterpret_cast<const uint32_t*>(&got);
  const auto* b = reinterpret_cast<const uint32_t*>(&want);
  for (size_t i = 0; i < sizeof(Words) / 4; ++i) {
    if (UlpsApart(a[i], b[i]) > ulps) return At(what, i, a[i], b[i]);
  }
  return "";
}

}  // namespace

WrapperInput MakeWrapperInput() {
  WrapperInput input{};
  for (uint32_t row = 0; row < kM; ++row) {
    for (uint32_t col = 0; col < kK; ++col) {
      const auto number = static_cast<float>(NumberInA(row, col));
      PutHalf(input.a_bf16, PlaceInA(row, col), FloatToBF16(number));
      PutHalf(input.a_f16, PlaceInA(row, col), FloatToF16(number));
    }
  }
  for (uint32_t row = 0; row < kK; ++row) {
    for (uint32_t col = 0; col < kN; ++col) {
      const auto number = static_cast<float>(NumberInB(row, col));
      PutHalf(input.b_bf16, PlaceInB(row, col), FloatToBF16(number));
      PutHalf(input.b_f16, PlaceInB(row, col), FloatToF16(number));
    }
  }
  for (uint32_t row = 0; row < kM; ++row) {
    for (uint32_t col = 0; col < kN; ++col) {
      const Place at = PlaceInC(row, col);
      input.c[at.lane][at.element] =
          std::bit_cast<uint32_t>(static_cast<float>(NumberInC(row, col)));
    }
  }
  for (uint32_t i = 0; i < kExponents; ++i) {  // -160 .. 95.7, most of them no whole numbers
    input.exponents[i] = std::bit_cast<uint32_t>(-160.0f + static_cast<float>(i) * 0.5f +
                                                 static_cast<float>(i % 7) * 0.0625f);
  }
  for (uint32_t i = 0; i < 4; ++i) input.copy_source[i] = 0x04030201u + i * 0x04040404u;
  return input;
}

WrapperDump RightDump(const WrapperInput& input) {
  WrapperDump right{};
  for (uint32_t row = 0; row < kM; ++row) {
    for (uint32_t col = 0; col < kN; ++col) {
      int sum = NumberInC(row, col);
      for (uint32_t k = 0; k < kK; ++k) sum += NumberInA(row, k) * NumberInB(k, col);
      const Place at = PlaceInC(row, col);
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(sum));
      right.mma_bf16[at.lane][at.element] = right.mma_f16[at.lane][at.element] = bits;
    }
  }
  constexpr uint32_t kCounts[] = {1, 2, 4};
  for (uint32_t i = 0; i < 6; ++i) FillMatrices(right.ldmatrix[i], kCounts[i % 3], i >= 3);
  for (uint32_t i = 0; i < kExponents; ++i) right.exp2[i] = Exp2Rounded(input.exponents[i]);
  for (uint32_t bytes = 0; bytes < kCopySizes; ++bytes) {
    std::memcpy(right.copy[bytes], input.copy_source, bytes);  // the rest becomes zero
  }
  return right;
}

std::string DifferenceOf(const WrapperDump& dump, const WrapperDump& right) {
  std::string found = Compare("mma bf16", dump.mma_bf16, right.mma_bf16);
  if (found.empty()) found = Compare("mma f16", dump.mma_f16, right.mma_f16);
  if (found.empty()) found = Compare("ldmatrix", dump.ldmatrix, right.ldmatrix);
  if (found.empty()) found = Compare("ex2", dump.exp2, right.exp2, 2);
  if (found.empty()) found = Compare("cp.async", dump.copy, right.copy);
  return found;
}

}  // namespace kvtriage::gpu
