// Compaction on this machine's device against plain gather-then-write, byte for byte; and rows that
// lie further from each other than 32 bits can say.
#include <gtest/gtest.h>

#include <memory>

#include "kernels/cuda/compact.h"
#include "tests/gpu/device.h"
#include "tests/support/random_move.h"
#include "tests/unit/cuda/device_memory.h"

namespace kvtriage {
namespace {

class DeviceMoves : public testing::Test {
 protected:
  DeviceMoves() {
    gpu::SetDeviceOrSkip();
    absl::StatusOr<std::unique_ptr<Workspace>> made = Workspace::Make(16 << 20);
    EXPECT_TRUE(made.ok()) << made.status();
    workspace_ = std::move(*made);
  }

  void CheckMove(uint32_t seed, uint32_t most_rows) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomMove move(seed, most_rows);
    const DeviceMemory source(move.source, *workspace_), target(move.target, *workspace_);
    const DeviceMemory& written_to = move.in_place ? source : target;
    move.request.from.base = source.data() + move.shift;
    move.request.to.base = written_to.data() + move.shift;
    MoveResult result;
    ASSERT_TRUE(CudaMoveRows({&move.request, 1}, *workspace_, result).ok());
    workspace_->Reset();
    EXPECT_EQ(result.bytes_written, move.bytes_written);
    EXPECT_TRUE(written_to.Bytes() == move.right);
  }

  std::unique_ptr<Workspace> workspace_;
};

TEST_F(DeviceMoves, FewRows) {
  for (uint32_t seed = 0; seed < 10; ++seed) ASSERT_NO_FATAL_FAILURE(CheckMove(seed, 100));
}

TEST_F(DeviceMoves, ManyRows) {
  for (uint32_t seed = 100; seed < 140; ++seed) ASSERT_NO_FATAL_FAILURE(CheckMove(seed, 20000));
}

// Two blocks, 4 GiB apart: rows of the second become rows of the first.
TEST_F(DeviceMoves, BeyondFourGiB) {
  constexpr uint64_t kApart = (uint64_t{1} << 32) + 4096, kRowBytes = 256;
  constexpr uint32_t kSlots = 64;
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  if (free < kApart + (uint64_t{1} << 30)) GTEST_SKIP() << "less than 5 GiB of device memory free";
  gpu::DeviceBuffer memory(kApart + kSlots * kRowBytes);
  std::mt19937 random(3);
  const std::vector<std::byte> rows = RandomBytes(kSlots * kRowBytes, random);
  ASSERT_EQ(cudaMemcpyAsync(memory.data() + kApart, rows.data(), rows.size(),
                            cudaMemcpyHostToDevice, workspace_->stream()),
            cudaSuccess);
  const KvView view{memory.data(),
                    {.block_stride = kApart,
                     .head_stride = kSlots * kRowBytes,
                     .slot_stride = kRowBytes,
                     .num_blocks = 2,
                     .block_slots = kSlots,
                     .heads = 1,
                     .opaque_row_bytes = kRowBytes},
                    {}};
  const std::vector<int32_t> table = {0, 1};
  std::vector<int32_t> kept;
  for (int32_t p = kSlots; p < int32_t{2 * kSlots}; ++p) kept.push_back(p);
  const SequenceRows all{table.data(), 0, 2 * kSlots};
  MoveResult result;
  const MoveRequest request{view, all, view, all, {kept}};
  ASSERT_TRUE(CudaMoveRows({&request, 1}, *workspace_, result).ok());
  std::vector<std::byte> moved(rows.size());
  memory.Read(moved.data(), moved.size(), workspace_->stream());
  EXPECT_TRUE(moved == rows);
}

}  // namespace
}  // namespace kvtriage
