// The counters against numbers worked out by hand from the machine's rules: sectors of 32 bytes, 32
// banks of 4 bytes.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/emulation/emulation.h"

namespace kvtriage {
namespace {

using emulation::Counters;
using emulation::RunGrid;

class AccessCounters : public testing::Test {
 protected:
  AccessCounters() {
    emulation::SetOptions({.seed = 1, .count_accesses = true});
    emulation::TakeCounters();
  }
  ~AccessCounters() override { emulation::SetOptions({}); }

  // One warp reads or writes element `stride * lane` of a buffer.
  template <class T>
  Counters ReadStrided(size_t stride) {
    std::vector<simt::Vec16> buffer(stride * 32 * sizeof(T) / 16 + 4);
    const T* data = reinterpret_cast<const T*>(buffer.data());
    RunGrid({.threads = 32}, [&] { simt::Load(data + stride * simt::ThreadX()); });
    return emulation::TakeCounters();
  }
  template <class T>
  uint64_t SharedExtraPasses(size_t stride) {
    RunGrid({.threads = 32, .shared_bytes = (stride * 31 + 1) * sizeof(T)}, [&] {
      const simt::Shared<T> shared(simt::SharedMemory(0));
      const T* last = &shared[stride * simt::ThreadX()];  // what is done there does not matter
      EXPECT_NE(last, nullptr);
    });
    const Counters counters = emulation::TakeCounters();
    EXPECT_EQ(counters.shared_requests, 1u);
    return counters.shared_extra_passes;
  }
};

TEST_F(AccessCounters, SectorsOfGlobalLoads) {
  Counters c = ReadStrided<uint32_t>(1);
  EXPECT_EQ(c.load_requests, 1u);
  EXPECT_EQ(c.load_bytes[2], 128u);
  EXPECT_GE(c.load_sectors, 4u);  // 5 when the buffer does not start a sector
  EXPECT_LE(c.load_sectors, 5u);
  EXPECT_EQ(ReadStrided<uint32_t>(8).load_sectors, 32u);
  EXPECT_EQ(ReadStrided<uint32_t>(0).load_sectors, 1u);
  c = ReadStrided<simt::Vec16>(1);
  EXPECT_EQ(c.load_bytes[4], 512u);
  EXPECT_GE(c.load_sectors, 16u);
  EXPECT_LE(c.load_sectors, 17u);
  EXPECT_EQ(c.global_load_bytes(), 512u);
  EXPECT_EQ(ReadStrided<uint8_t>(1).load_bytes[0], 32u);
}

TEST_F(AccessCounters, BankConflictsOfSharedAccesses) {
  EXPECT_EQ(SharedExtraPasses<uint32_t>(1), 0u);
  EXPECT_EQ(SharedExtraPasses<uint32_t>(0), 0u) << "one word for all lanes";
  EXPECT_EQ(SharedExtraPasses<uint32_t>(2), 1u);
  EXPECT_EQ(SharedExtraPasses<uint32_t>(32), 31u);
  EXPECT_EQ(SharedExtraPasses<uint32_t>(33), 0u);
  EXPECT_EQ(SharedExtraPasses<uint16_t>(1), 0u) << "two lanes a word";
  EXPECT_EQ(SharedExtraPasses<uint64_t>(1), 0u);
  EXPECT_EQ(SharedExtraPasses<simt::Vec16>(1), 0u);
  // Eight lanes at a time, 32 bytes apart: lanes 0 and 4 meet in a bank, in each of four quarters.
  EXPECT_EQ(SharedExtraPasses<simt::Vec16>(2), 4u);
}

// A loop: each turn is a request of its own, also when lanes run far ahead of each other, and lanes
// that leave the loop early do not mix turns.
TEST_F(AccessCounters, TurnsOfALoopAreRequests) {
  std::vector<uint32_t> data(32 * 10);
  RunGrid({.threads = 32}, [&] {
    const uint32_t lane = simt::ThreadX(), turns = lane < 16 ? 10 : 4;
    for (uint32_t turn = 0; turn < turns; ++turn) simt::Store(&data[turn * 32 + lane], turn);
  });
  const Counters c = emulation::TakeCounters();
  EXPECT_EQ(c.store_bytes[2], (16u * 10 + 16u * 4) * 4);
  EXPECT_EQ(c.store_requests, 10u);
}

TEST_F(AccessCounters, PitchDecidesAboutLdMatrix) {
  for (const uint32_t pitch : {256u, 272u}) {
    RunGrid({.threads = 32, .shared_bytes = 16 * size_t{pitch}}, [&] {
      uint32_t r[4];
      const uint32_t lane = simt::ThreadX();
      simt::LdMatrix<4>(r, simt::SharedMemory(lane % 16 * pitch + lane / 16 * 16));
    });
    const Counters c = emulation::TakeCounters();
    EXPECT_EQ(c.ldmatrix, 1u);
    EXPECT_EQ(c.ldmatrix_extra_passes, pitch == 256 ? 4u * 7 : 0u);
  }
}

TEST_F(AccessCounters, CountsAreExactForAnyNumberOfHostThreads) {
  alignas(16) float source[4] = {};
  for (const uint32_t host_threads : {1u, 3u}) {
    emulation::SetOptions({.seed = 2, .host_threads = host_threads, .count_accesses = true});
    RunGrid({.blocks_x = 7, .threads = 64, .shared_bytes = 1024}, [&] {
      simt::AsyncCopy16(simt::SharedMemory(16 * simt::ThreadX()), source, 12);
      simt::AsyncCommit();
      simt::AsyncWait<0>();
      simt::SyncThreads();
      float d[4] = {};
      const uint32_t a[4] = {}, b[2] = {};
      simt::MmaBf16(d, a, b);
      simt::Load(source);
    });
    const Counters c = emulation::TakeCounters();
    EXPECT_EQ(c.grids, 1u);
    EXPECT_EQ(c.async_copy_bytes, 7u * 64 * 12);
    EXPECT_EQ(c.block_barriers, 7u);
    EXPECT_EQ(c.mma, 14u);
    EXPECT_EQ(c.load_requests, 14u);
    EXPECT_EQ(c.global_load_bytes(), 7u * 64 * (12 + 4));
  }
}

}  // namespace
}  // namespace kvtriage
