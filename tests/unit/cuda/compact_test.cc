// The compaction kernel against plain gather-then-write, byte for byte, under every schedule.
#include "kernels/cuda/compact.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/compact_launch.h"
#include "kernels/emulation/emulation.h"
#include "tests/support/fiber_cost.h"
#include "tests/support/random_move.h"
#include "tests/unit/cuda/device_memory.h"
#include "tests/unit/fake_cuda/fake_device.h"

namespace kvtriage {
namespace {

constexpr uint32_t kMoves = Repeats(40);
constexpr uint32_t kMostRows = kSlowFibers ? 150 : 300;

class CudaCompact : public FakeDevice {
 protected:
  CudaCompact() {
    absl::StatusOr<std::unique_ptr<Workspace>> made = Workspace::Make(8 << 20);
    EXPECT_TRUE(made.ok()) << made.status();
    workspace_ = std::move(*made);
  }
  ~CudaCompact() override {
    workspace_.reset();
    emulation::SetOptions({});
  }

  void CheckMove(uint32_t seed, uint32_t most_rows) {
    SCOPED_TRACE(testing::Message() << "move " << seed);
    RandomMove move(seed, most_rows);
    DeviceMemory source(move.source, *workspace_), target(move.target, *workspace_);
    DeviceMemory& written_to = move.in_place ? source : target;
    move.request.from.base = source.data() + move.shift;
    move.request.to.base = written_to.data() + move.shift;
    emulation::TakeCounters();
    MoveResult result;
    ASSERT_TRUE(CudaMoveRows({&move.request, 1}, *workspace_, result).ok());
    workspace_->Reset();
    EXPECT_EQ(result.bytes_written, move.bytes_written);
    EXPECT_TRUE(written_to.Bytes() == move.right);
    if (!move.in_place) {
      EXPECT_TRUE(source.Bytes() == move.source);
    }
    stored_ = emulation::TakeCounters().global_store_bytes();
  }

  std::unique_ptr<Workspace> workspace_;
  uint64_t stored_ = 0;
};

TEST_F(CudaCompact, RandomGeometriesEqualGatherThenWrite) {
  for (const uint64_t schedule : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "schedule " << schedule);
    emulation::SetOptions({.seed = schedule, .count_accesses = !kSlowFibers});
    for (uint32_t seed = 0; seed < kMoves; ++seed) {
      RandomMove move(seed, kMostRows);
      ASSERT_NO_FATAL_FAILURE(CheckMove(seed, kMostRows));
      if (kSlowFibers) continue;
      EXPECT_EQ(stored_, move.bytes_written) << "only rows that move are stored";
    }
  }
}

TEST_F(CudaCompact, HostThreadsRunBlocksSideBySide) {
  emulation::SetOptions({.seed = 5, .host_threads = 3});
  for (uint32_t seed = 100; seed < 100 + kMoves; ++seed) {
    ASSERT_NO_FATAL_FAILURE(CheckMove(seed, kMostRows));
  }
}

// A sequence of 2,500 rows in place: many tiles that wait for each other.
struct LongMove {
  static constexpr uint32_t kRows = kSlowFibers ? 300 : 2500, kRowBytes = 256, kHeads = 2;
  LongMove() {
    std::mt19937 random(7);
    for (uint32_t p = 0; p < kRows; ++p) {
      if (random() % 10 != 0) kept.push_back(static_cast<int32_t>(p));
    }
    layout = {.block_stride = 16 * kRowBytes * kHeads,
              .head_stride = 16 * kRowBytes,
              .slot_stride = kRowBytes,
              .num_blocks = (kRows + 15) / 16,
              .block_slots = 16,
              .heads = kHeads,
              .opaque_row_bytes = kRowBytes};
    for (uint32_t b = 0; b < layout.num_blocks; ++b) table.push_back(static_cast<int32_t>(b));
    bytes = RandomBytes(uint64_t{layout.num_blocks} * layout.block_stride, random);
    request.from = request.to = {nullptr, layout};
    request.from_rows = {table.data(), 0, kRows};
    request.to_rows = {table.data(), 0, static_cast<uint32_t>(kept.size())};
    request.kept.assign(kHeads, kept);
    right = bytes;
    written = MoveByHand(request, true, bytes, 0, right, 0);
  }

  ViewLayout layout;
  std::vector<int32_t> table, kept;
  std::vector<std::byte> bytes, right;
  uint64_t written;
  MoveRequest request;
};

TEST_F(CudaCompact, LongSequencesMoveAtTheOptimumInOneLaunch) {
  LongMove move;
  for (const uint64_t schedule : {0, 1, 2, 3}) {
    emulation::SetOptions({.seed = schedule, .count_accesses = !kSlowFibers});
    DeviceMemory memory(move.bytes, *workspace_);
    move.request.from.base = move.request.to.base = memory.data();
    ASSERT_TRUE(fake_cuda::Script(""));
    emulation::TakeCounters();
    MoveResult result;
    ASSERT_TRUE(CudaMoveRows({&move.request, 1}, *workspace_, result).ok());
    workspace_->Reset();
    const emulation::Counters counters = emulation::TakeCounters();
    EXPECT_EQ(fake_cuda::Counts()["launch"], 1u);
    EXPECT_EQ(fake_cuda::Counts()["cudaMalloc"], 0u);
    EXPECT_EQ(result.bytes_written, move.written);
    EXPECT_TRUE(memory.Bytes() == move.right) << "schedule " << schedule;
    EXPECT_EQ(counters.async_copy_bytes, move.written) << "rows that move, read once";
    if (kSlowFibers) continue;
    EXPECT_EQ(counters.store_bytes[4], move.written) << "rows that move, written once";
    EXPECT_EQ(counters.shared_extra_passes, 0u);
  }
}

TEST_F(CudaCompact, NothingToMoveLaunchesNothing) {
  LongMove move;
  std::vector<int32_t> all(LongMove::kRows);
  for (uint32_t p = 0; p < LongMove::kRows; ++p) all[p] = static_cast<int32_t>(p);
  move.request.kept.assign(LongMove::kHeads, all);
  move.request.to_rows.rows = LongMove::kRows;
  ASSERT_TRUE(fake_cuda::Script(""));
  MoveResult result;
  ASSERT_TRUE(CudaMoveRows({&move.request, 1}, *workspace_, result).ok());
  EXPECT_EQ(result.bytes_written, 0u);
  EXPECT_EQ(fake_cuda::Counts()["launch"], 0u);
}

TEST_F(CudaCompact, TooSmallAWorkspaceLeavesEveryByte) {
  LongMove move;
  auto small = Workspace::Make(512);
  ASSERT_TRUE(small.ok());
  DeviceMemory memory(move.bytes, *workspace_);
  move.request.from.base = move.request.to.base = memory.data();
  MoveResult result;
  EXPECT_EQ(CudaMoveRows({&move.request, 1}, **small, result).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(memory.Bytes() == move.bytes);
}

}  // namespace
}  // namespace kvtriage
