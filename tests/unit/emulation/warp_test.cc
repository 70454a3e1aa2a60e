// What lanes of a warp do together, against the definitions of the CUDA programming guide and of
// the PTX ISA, written out plainly.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/cuda/simt.h"
#include "kernels/emulation/emulation.h"
#include "tests/unit/emulation/seeds.h"

namespace kvtriage {
namespace {

using emulation::RunGrid;
using simt::kAllLanes;

class Warps : public EverySchedule {};

TEST_P(Warps, ShufflesReadTheRightLane) {
  for (const uint32_t width : {32u, 16u, 8u, 2u}) {
    for (const uint32_t step : {0u, 1u, 3u, 7u, 16u, 31u}) {
      std::vector<uint64_t> by_xor(64), down(64), up(64), from(64);
      RunGrid({.threads = 64}, [&] {
        const uint32_t i = simt::ThreadX();
        const uint64_t value = 1000 + i;
        by_xor[i] = simt::ShuffleXor(kAllLanes, value, step, width);
        down[i] = simt::ShuffleDown(kAllLanes, value, step, width);
        up[i] = simt::ShuffleUp(kAllLanes, value, step, width);
        from[i] = simt::ShuffleFrom(kAllLanes, value, step, width);
      });
      for (uint32_t i = 0; i < 64; ++i) {
        const uint32_t segment = i / width * width, place = i % width;
        const uint32_t other = (i % 32 ^ step) + i / 32 * 32;
        EXPECT_EQ(by_xor[i], 1000 + (other / width == i / width ? other : i))
            << width << " " << step;
        EXPECT_EQ(down[i], 1000 + (place + step < width ? i + step : i));
        EXPECT_EQ(up[i], 1000 + (place >= step ? i - step : i));
        EXPECT_EQ(from[i], 1000 + segment + step % width);
      }
    }
  }
}

TEST_P(Warps, VotesMatchesAndReductions) {
  std::vector<uint32_t> ballots(40), matches(40), sums(40), lows(40), highs(40), ands(40), ors(40);
  RunGrid({.threads = 40}, [&] {
    const uint32_t i = simt::ThreadX(), mask = i < 32 ? kAllLanes : 0xFFu;
    ballots[i] = simt::Ballot(mask, i % 3 == 0);
    matches[i] = simt::MatchAny(mask, i % 5);
    sums[i] = simt::ReduceAdd(mask, i);
    lows[i] = simt::ReduceMin(mask, 100 - i);
    highs[i] = simt::ReduceMax(mask, 100 - i);
    ands[i] = simt::ReduceAnd(mask, i | 0x80);
    ors[i] = simt::ReduceOr(mask, i);
  });
  for (uint32_t i = 0; i < 40; ++i) {
    const uint32_t first = i / 32 * 32, last = i < 32 ? 32 : 40;
    uint32_t ballot = 0, match = 0, sum = 0, both = ~0u, any = 0;
    for (uint32_t j = first; j < last; ++j) {
      if (j % 3 == 0) ballot |= 1u << (j - first);
      if (j % 5 == i % 5) match |= 1u << (j - first);
      sum += j;
      both &= j | 0x80;
      any |= j;
    }
    EXPECT_EQ(ballots[i], ballot);
    EXPECT_EQ(matches[i], match);
    EXPECT_EQ(sums[i], sum);
    EXPECT_EQ(lows[i], 100 - (last - 1));
    EXPECT_EQ(highs[i], 100 - first);
    EXPECT_EQ(ands[i], both);
    EXPECT_EQ(ors[i], any);
  }
}

// Half of the lanes vote and shuffle among themselves while the others do something else.
TEST_P(Warps, PartsOfAWarpMeetOnTheirOwn) {
  std::vector<uint32_t> result(32);
  RunGrid({.threads = 32}, [&] {
    const uint32_t i = simt::ThreadX();
    if (i % 2 == 0) {
      uint32_t sum = i;
      for (uint32_t step = 2; step < 32; step *= 2) {
        sum += simt::ShuffleXor(0x55555555u, sum, step);
      }
      result[i] = sum;
    } else {
      result[i] = simt::Ballot(0xAAAAAAAAu, i > 16);
    }
  });
  for (uint32_t i = 0; i < 32; i += 2) EXPECT_EQ(result[i], 16u * 15);
  for (uint32_t i = 1; i < 32; i += 2) EXPECT_EQ(result[i], 0xAAAA0000u & ~((1u << 17) - 1));
}

// One product, operands staged and loaded as kernels do it: A and B^T as rows in shared memory.
template <class Encode, class Decode, class Multiply>
void CheckProduct(Encode encode, Decode decode, Multiply multiply, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed + 1));
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<uint16_t> a(16 * 16), bt(8 * 16);
  for (auto* tile : {&a, &bt}) {
    for (uint16_t& x : *tile) x = encode(uniform(random));
  }
  std::vector<float> d(16 * 8), start(16 * 8);
  for (float& x : start) x = uniform(random);
  RunGrid({.threads = 32, .shared_bytes = (a.size() + bt.size()) * 2}, [&] {
    const uint32_t lane = simt::ThreadX();
    const simt::Shared<uint16_t> shared(simt::SharedMemory(0));
    for (uint32_t i = lane; i < 256; i += 32) shared[i] = simt::Load(&a[i]);
    for (uint32_t i = lane; i < 128; i += 32) shared[256 + i] = simt::Load(&bt[i]);
    simt::SyncThreads();
    uint32_t fa[4], fb[2];
    simt::LdMatrix<4>(fa, simt::SharedMemory(((lane % 16) * 16 + lane / 16 * 8) * 2));
    simt::LdMatrix<2>(fb, simt::SharedMemory((256 + lane % 8 * 16 + lane / 8 % 2 * 8) * 2));
    const uint32_t g = lane / 4, q = lane % 4;
    float sum[4];
    for (uint32_t i = 0; i < 4; ++i) sum[i] = start[(g + i / 2 * 8) * 8 + 2 * q + i % 2];
    multiply(sum, fa, fb);
    for (uint32_t i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = sum[i];
  });
  for (uint32_t m = 0; m < 16; ++m) {
    for (uint32_t n = 0; n < 8; ++n) {
      double want = start[m * 8 + n];
      for (uint32_t k = 0; k < 16; ++k) {
        want += double{decode(a[m * 16 + k])} * double{decode(bt[n * 16 + k])};
      }
      EXPECT_NEAR(d[m * 8 + n], want, 1e-5) << m << ", " << n;
    }
  }
}

TEST_P(Warps, ProductsOfTensorCores) {
  CheckProduct(FloatToBF16, BF16ToFloat, simt::MmaBf16, GetParam());
  CheckProduct(FloatToF16, F16ToFloat, simt::MmaF16, GetParam());
}

TEST_P(Warps, LdMatrixGivesEachLaneItsPairs) {
  std::vector<uint16_t> tile(4 * 64);
  for (uint32_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> plain(32 * 4), turned(32 * 4), one(32), two(32 * 2);
  RunGrid({.threads = 32, .shared_bytes = tile.size() * 2}, [&] {
    const uint32_t lane = simt::ThreadX();
    const simt::Shared<uint16_t> shared(simt::SharedMemory(0));
    for (uint32_t i = lane; i < tile.size(); i += 32) shared[i] = tile[i];
    simt::SyncThreads();
    uint32_t four[4], pair[2], single[1];
    const std::byte* row = simt::SharedMemory(lane * 16);
    simt::LdMatrix<4>(four, row);
    std::memcpy(&plain[lane * 4], four, sizeof four);
    simt::LdMatrix<4, true>(four, row);
    std::memcpy(&turned[lane * 4], four, sizeof four);
    simt::LdMatrix<2>(pair, row);
    std::memcpy(&two[lane * 2], pair, sizeof pair);
    simt::LdMatrix<1>(single, row);
    one[lane] = single[0];
  });
  const auto pair_of = [&](uint32_t low, uint32_t high) {
    return static_cast<uint32_t>(tile[low]) | static_cast<uint32_t>(tile[high]) << 16;
  };
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t row = lane / 4, column = lane % 4 * 2;
      const uint32_t by_row = pair_of(m * 64 + row * 8 + column, m * 64 + row * 8 + column + 1);
      EXPECT_EQ(plain[lane * 4 + m], by_row);
      EXPECT_EQ(turned[lane * 4 + m],
                pair_of(m * 64 + column * 8 + row, m * 64 + (column + 1) * 8 + row));
      if (m < 2) {
        EXPECT_EQ(two[lane * 2 + m], by_row);
      }
      if (m < 1) {
        EXPECT_EQ(one[lane], by_row);
      }
    }
  }
}

// Until a group is waited for, its destination reads as NaN; groups land oldest first.
TEST_P(Warps, AsyncCopiesLandWhenWaitedFor) {
  alignas(16) float source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> before(2), after_first(2), after_all(8);
  RunGrid({.threads = 1, .shared_bytes = 32}, [&] {
    const simt::Shared<float> shared(simt::SharedMemory(0));
    for (uint32_t i = 0; i < 8; ++i) shared[i] = 0;
    simt::AsyncCopy16(shared.data(), source);
    simt::AsyncCommit();
    simt::AsyncCopy16(shared.data() + 4, source + 4, 8);
    simt::AsyncCommit();
    before = {shared[0], shared[4]};
    simt::AsyncWait<1>();
    after_first = {shared[0], shared[4]};
    simt::AsyncWait<0>();
    for (uint32_t i = 0; i < 8; ++i) after_all[i] = shared[i];
  });
  EXPECT_TRUE(std::isnan(before[0]) && std::isnan(before[1]));
  EXPECT_EQ(after_first[0], 1);
  EXPECT_TRUE(std::isnan(after_first[1]));
  EXPECT_EQ(after_all, (std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0}));
}

TEST_P(Warps, Exp2FlushesSubnormals) {
  std::vector<float> y(4);
  const float x[4] = {3, -126, -127, -200};
  RunGrid({.threads = 4}, [&] { y[simt::ThreadX()] = simt::Exp2Approx(x[simt::ThreadX()]); });
  EXPECT_EQ(y, (std::vector<float>{8, 0x1p-126f, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Seeds, Warps, testing::Values(0, 1, 2, 3), SeedName);

}  // namespace
}  // namespace kvtriage
