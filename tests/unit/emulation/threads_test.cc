// Threads, blocks, barriers, atomics: what a grid promises whatever the schedule.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/emulation/emulation.h"
#include "tests/unit/emulation/seeds.h"

namespace kvtriage {
namespace {

using emulation::RunGrid;

class Threads : public EverySchedule {};

TEST_P(Threads, EachRunsOnceAndKnowsWhereItIs) {
  const uint32_t x = 3, y = 2, z = 2, threads = 70;
  std::vector<uint32_t> runs(x * y * z * threads);
  RunGrid({.blocks_x = x, .blocks_y = y, .blocks_z = z, .threads = threads}, [&] {
    EXPECT_EQ(simt::BlockThreads(), threads);
    EXPECT_EQ(simt::GridX(), x);
    const uint32_t block = (simt::BlockZ() * y + simt::BlockY()) * x + simt::BlockX();
    simt::AtomicAdd(&runs[block * threads + simt::ThreadX()], 1u);
  });
  EXPECT_EQ(runs, std::vector<uint32_t>(runs.size(), 1));
}

TEST_P(Threads, SharedMemoryIsPoisonedExactAndOfOneBlock) {
  const uint32_t threads = 33;
  std::vector<float> sums(8, -1.0f);
  std::vector<uint8_t> started_as_nan(8);
  RunGrid({.blocks_x = 8, .threads = threads, .shared_bytes = threads * sizeof(float)}, [&] {
    const simt::Shared<float> shared(simt::SharedMemory(0));
    const uint32_t i = simt::ThreadX();
    const bool nan = std::isnan(shared[i]);
    const uint32_t block = simt::BlockX();
    shared[i] = nan ? static_cast<float>(block) : -1000.0f;
    simt::SyncThreads();
    if (i == 0) {
      float sum = 0;
      for (uint32_t j = 0; j < threads; ++j) sum += shared[j];
      sums[block] = sum;
      started_as_nan[block] = nan;
    }
  });
  for (uint32_t block = 0; block < 8; ++block) {
    EXPECT_EQ(sums[block], static_cast<float>(block * threads));
    EXPECT_TRUE(started_as_nan[block]);
  }
}

// A rotation by one, many rounds, two buffers: one barrier a round is enough, and needed.
TEST_P(Threads, BarriersSeparateRounds) {
  const uint32_t threads = 96, rounds = 20;
  std::vector<uint32_t> last(threads);
  RunGrid({.threads = threads, .shared_bytes = 2 * threads * sizeof(uint32_t)}, [&] {
    const simt::Shared<uint32_t> shared(simt::SharedMemory(0));
    const uint32_t i = simt::ThreadX();
    shared[i] = i;
    for (uint32_t round = 0; round < rounds; ++round) {
      simt::SyncThreads();
      const uint32_t from = round % 2 * threads, to = (round + 1) % 2 * threads;
      shared[to + i] = shared[from + (i + 1) % threads];
    }
    simt::SyncThreads();
    last[i] = shared[rounds % 2 * threads + i];
  });
  for (uint32_t i = 0; i < threads; ++i) EXPECT_EQ(last[i], (i + rounds) % threads);
}

// One half of the block hands values to the other and gets sums back: no barrier of the whole
// block.
TEST_P(Threads, NamedBarriersAreForSomeWarps) {
  std::vector<uint32_t> sums(2);
  RunGrid({.blocks_x = 2, .threads = 128, .shared_bytes = 64 * sizeof(uint32_t)}, [&] {
    const simt::Shared<uint32_t> shared(simt::SharedMemory(0));
    const uint32_t i = simt::ThreadX();
    if (i >= 64) return;
    shared[i] = i;
    simt::SyncNamed(3, 64);
    if (i != 0) return;
    uint32_t sum = 0;
    for (uint32_t j = 0; j < 64; ++j) sum += shared[j];
    sums[simt::BlockX()] = sum;
  });
  EXPECT_EQ(sums, std::vector<uint32_t>(2, 64 * 63 / 2));
}

// Blocks take tickets and hand a value from ticket to ticket, later ones spinning for earlier ones.
uint32_t PassAlong(uint32_t blocks) {
  std::vector<uint32_t> handed(blocks + 1);
  uint32_t ticket = 0;
  handed[0] = 1;
  RunGrid({.blocks_x = blocks, .threads = 32, .shared_bytes = 4}, [&] {
    const simt::Shared<uint32_t> mine(simt::SharedMemory(0));
    if (simt::ThreadX() == 0) mine[0] = simt::AtomicAdd(&ticket, 1u);
    simt::SyncThreads();
    if (simt::ThreadX() != 0) return;
    uint32_t value = 0;
    while ((value = simt::LoadAcquire(&handed[mine[0]])) == 0) simt::SpinPause();
    simt::StoreRelease(&handed[mine[0] + 1], value + 3);
  });
  return handed[blocks];
}

TEST_P(Threads, BlocksMaySpinForEarlierTickets) { EXPECT_EQ(PassAlong(20), 1u + 3 * 20); }

TEST_P(Threads, HostThreadsShareAGrid) {
  emulation::SetOptions({.seed = GetParam(), .host_threads = 3, .resident_blocks = 2});
  EXPECT_EQ(PassAlong(24), 1u + 3 * 24);
}

TEST_P(Threads, AtomicsCountEveryThread) {
  uint64_t sum = 0;
  int32_t highest = -5;
  uint32_t owner = 0, swapped = 0;
  std::atomic<int> winners{0};
  emulation::SetOptions({.seed = GetParam(), .host_threads = 2});
  RunGrid({.blocks_x = 5, .threads = 64}, [&] {
    const uint32_t id = simt::BlockX() * 64 + simt::ThreadX();
    simt::AtomicAdd(&sum, uint64_t{id} << 30);
    simt::AtomicMax(&highest, static_cast<int32_t>(id));
    if (simt::AtomicCas(&owner, 0u, id + 1) == 0) ++winners;
    simt::AtomicExchange(&swapped, id + 1);
  });
  EXPECT_EQ(sum, uint64_t{320 * 319 / 2} << 30);
  EXPECT_EQ(highest, 319);
  EXPECT_EQ(winners, 1);
  EXPECT_GE(owner, 1u);
  EXPECT_GE(swapped, 1u);
}

TEST(Schedules, SeedsChangeTheOrderOfBlocksAndRepeat) {
  std::set<std::vector<uint32_t>> orders;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    emulation::SetOptions({.seed = seed});
    std::vector<uint32_t> first(12), second(12);
    for (auto* order : {&first, &second}) {
      uint32_t started = 0;
      RunGrid({.blocks_x = 12, .threads = 32}, [&] {
        if (simt::ThreadX() == 0) (*order)[simt::AtomicAdd(&started, 1u)] = simt::BlockX();
      });
    }
    EXPECT_EQ(first, second) << "seed " << seed;
    orders.insert(first);
  }
  EXPECT_EQ(orders.size(), 4u);
  emulation::SetOptions({});
}

INSTANTIATE_TEST_SUITE_P(Seeds, Threads, testing::Values(0, 1, 2, 3), SeedName);

}  // namespace
}  // namespace kvtriage
