// mma.m16n8k16 and ldmatrix, by the fragment maps of the PTX ISA. With g = lane / 4, q = lane % 4:
//   A (16 x 16): register 0 holds (g, 2q..2q+1), 1 (g+8, 2q..), 2 (g, 2q+8..), 3 (g+8, 2q+8..)
//   B (16 x 8):  register 0 holds (2q..2q+1, g), 1 (2q+8.., g)
//   D (16 x 8):  0 (g, 2q)  1 (g, 2q+1)  2 (g+8, 2q)  3 (g+8, 2q+1)
#include <algorithm>
#include <cstring>

#include "kernels/core/dtype.h"
#include "kernels/emulation/collective.h"
#include "kernels/emulation/instructions.h"

namespace kvtriage::emulation {
namespace {

struct MmaOperands {
  const uint32_t* a;
  const uint32_t* b;
  float* d;
};

struct LoadOperands {
  const std::byte* row;
  uint32_t* r;
};

constexpr uint32_t kRowBytes = 16, kMatrixRows = 8;

float Half(MmaType type, uint32_t pair, uint32_t which) {
  const auto bits = static_cast<uint16_t>(pair >> (16 * which));
  return type == MmaType::kBf16 ? BF16ToFloat(bits) : F16ToFloat(bits);
}

// Products are exact in float32 sums of ascending k; real tensor cores add in another order.
void MultiplyTiles(MmaType type, Thread* lanes) {
  float a[16][16], b[16][8], d[16][8] = {};
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& mine = *static_cast<const MmaOperands*>(lanes[lane].operands);
    const uint32_t g = lane / 4, q = lane % 4;
    for (uint32_t half = 0; half < 2; ++half) {
      for (uint32_t i = 0; i < 4; ++i) {
        a[g + 8 * (i & 1)][2 * q + 8 * (i >> 1) + half] = Half(type, mine.a[i], half);
      }
      for (uint32_t i = 0; i < 2; ++i) b[2 * q + 8 * i + half][g] = Half(type, mine.b[i], half);
    }
  }
  for (uint32_t m = 0; m < 16; ++m) {
    for (uint32_t k = 0; k < 16; ++k) {
      for (uint32_t n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
    }
  }
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    float* out = static_cast<const MmaOperands*>(lanes[lane].operands)->d;
    const uint32_t g = lane / 4, q = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) out[i] += d[g + 8 * (i >> 1)][2 * q + (i & 1)];
  }
}

// Eight rows of 16 bytes fill the 32 banks when their 16-byte places differ modulo 8; each further
// row in one place is one more pass.
uint64_t ExtraPasses(const Thread* lanes, uint32_t matrix) {
  uint32_t rows_in_place[8] = {}, passes = 0;
  for (uint32_t i = 0; i < kMatrixRows; ++i) {
    const auto* operands =
        static_cast<const LoadOperands*>(lanes[matrix * kMatrixRows + i].operands);
    const uintptr_t place = reinterpret_cast<uintptr_t>(operands->row) / kRowBytes % 8;
    passes = std::max(passes, ++rows_in_place[place]);
  }
  return passes - 1;
}

void Distribute(Thread* lanes, uint32_t matrix, bool transposed) {
  uint16_t tile[kMatrixRows][8];
  for (uint32_t i = 0; i < kMatrixRows; ++i) {
    const auto* operands =
        static_cast<const LoadOperands*>(lanes[matrix * kMatrixRows + i].operands);
    std::memcpy(tile[i], operands->row, kRowBytes);
  }
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    const uint32_t g = lane / 4, q = lane % 4;
    const uint32_t low = transposed ? tile[2 * q][g] : tile[g][2 * q];
    const uint32_t high = transposed ? tile[2 * q + 1][g] : tile[g][2 * q + 1];
    static_cast<const LoadOperands*>(lanes[lane].operands)->r[matrix] = low | high << 16;
  }
}

void CheckRow(const Block& block, const std::byte* row) {
  if (reinterpret_cast<uintptr_t>(row) % kRowBytes != 0) {
    Fail("a row of ldmatrix is not 16-byte aligned");
  }
  if (row < block.shared || row + kRowBytes > block.shared + block.shared_bytes) {
    Fail("a row of ldmatrix is outside of shared memory");
  }
  if (!NoteRead(row, kRowBytes)) Fail("ldmatrix reads out of bounds");
}

}  // namespace

void Mma16816(MmaType type, float* d, const uint32_t* a, const uint32_t* b) {
  const MmaOperands mine{a, b, d};
  current->operands = &mine;
  Counters& counters = *current->block->counters;
  MeetLanes(~0u, type == MmaType::kBf16 ? "mma.bf16" : "mma.f16", Orders::kNothing,
            [type, &counters](Thread* lanes) {
              ++counters.mma;
              MultiplyTiles(type, lanes);
            });
}

void LoadMatrices(uint32_t* r, uint32_t matrices, bool transposed, const void* row) {
  Thread& thread = *current;
  const LoadOperands mine{static_cast<const std::byte*>(row), r};
  if (thread.lane < matrices * kMatrixRows) CheckRow(*thread.block, mine.row);
  thread.operands = &mine;
  Counters& counters = *thread.block->counters;
  MeetLanes(~0u, "ldmatrix", Orders::kNothing, [=, &counters](Thread* lanes) {
    ++counters.ldmatrix;
    for (uint32_t matrix = 0; matrix < matrices; ++matrix) {
      counters.ldmatrix_extra_passes += ExtraPasses(lanes, matrix);
      Distribute(lanes, matrix, transposed);
    }
  });
}

}  // namespace kvtriage::emulation
