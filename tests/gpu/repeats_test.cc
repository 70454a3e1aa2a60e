// The same call gives the same bits, however the device's blocks happen to run.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "kernels/core/rope_speeds.h"
#include "kernels/cuda/divergence.h"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/score.h"
#include "kernels/cuda/select.h"
#include "tests/gpu/device.h"
#include "tests/support/random_move.h"
#include "tests/unit/cuda/device_memory.h"

namespace kvtriage {
namespace {

constexpr int kRepeats = 9;
constexpr uint32_t kRows = 300, kHeads = 4, kElems = 128, kSlots = 16;

// Random bf16 between -2 and 2 in every element of a paged cache.
std::vector<std::byte> RandomCache(uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t blocks = (kRows + kSlots - 1) / kSlots;
  std::vector<uint16_t> elements(uint64_t{blocks} * kSlots * kHeads * kElems);
  for (uint16_t& x : elements) {
    x = FloatToBF16(static_cast<float>(random() % 4001) * 0.001f - 2.0f);
  }
  std::vector<std::byte> bytes(elements.size() * 2);
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

class Repeats : public testing::Test {
 protected:
  Repeats() {
    gpu::SetDeviceOrSkip();
    absl::StatusOr<std::unique_ptr<Workspace>> made = Workspace::Make(16 << 20);
    EXPECT_TRUE(made.ok()) << made.status();
    workspace_ = std::move(*made);
    table_.resize((kRows + kSlots - 1) / kSlots);
    std::iota(table_.rbegin(), table_.rend(), 0);
  }

  KvView View(const DeviceMemory& memory) const {
    constexpr uint64_t kRowBytes = uint64_t{kElems} * 2;
    return {memory.data(),
            {.block_stride = kSlots * kHeads * kRowBytes,
             .head_stride = kSlots * kRowBytes,
             .slot_stride = kRowBytes,
             .elem_stride = 2,
             .num_blocks = static_cast<uint32_t>(table_.size()),
             .block_slots = kSlots,
             .heads = kHeads,
             .row_elems = kElems,
             .dtype = DType::kBF16},
            {}};
  }
  SequenceRows Rows() const { return {table_.data(), 0, kRows}; }

  // Calls `result_of` again and again; it gives bytes or numbers.
  template <class ResultOf>
  void ExpectSameBits(ResultOf result_of) {
    const auto first = result_of();
    ASSERT_FALSE(first.empty());
    for (int repeat = 1; repeat < kRepeats; ++repeat) {
      const auto again = result_of();
      ASSERT_EQ(again.size(), first.size());
      ASSERT_EQ(std::memcmp(again.data(), first.data(), first.size() * sizeof first[0]), 0)
          << "repeat " << repeat;
    }
  }

  std::unique_ptr<Workspace> workspace_;
  std::vector<int32_t> table_;
};

TEST_F(Repeats, Divergence) {
  const DeviceMemory fresh(RandomCache(1), *workspace_), cached(RandomCache(2), *workspace_);
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  ExpectSameBits([&] {
    workspace_->Reset();
    DivergenceResult result;
    const DivergenceRequest request{
        .fresh = {View(fresh), Rows(), 0}, .cached = {View(cached), Rows(), 0}, .rows = rows};
    EXPECT_TRUE(CudaDivergeRows(request, *workspace_, result).ok());
    return result.divergence;
  });
}

TEST_F(Repeats, Rotation) {
  const Rope rope{.rotary_dim = kElems, .speeds = RopeSpeeds({.theta = 5e5}, kElems)};
  const std::vector<std::byte> before = RandomCache(3);
  ExpectSameBits([&] {
    workspace_->Reset();
    const DeviceMemory keys(before, *workspace_);
    RotateRequest request;
    request.keys = {View(keys)};
    request.rows = Rows();
    request.count = kRows;
    request.rope = &rope;
    request.to.first = 777;
    RotateResult result;
    EXPECT_TRUE(CudaRotateKeys({&request, 1}, *workspace_, result).ok());
    return keys.Bytes();
  });
}

TEST_F(Repeats, KeyNorms) {
  const DeviceMemory keys(RandomCache(4), *workspace_), values(RandomCache(5), *workspace_);
  ScoreRequest request;
  request.layer = {.k = View(keys), .v = View(values), .sequence = Rows(), .q_heads = kHeads};
  request.spec.scorer = Scorer::kKeyNorm;
  ExpectSameBits([&] {
    std::vector<ScoreResult> results;
    EXPECT_TRUE(CudaScoreLayers({&request, 1}, *workspace_, {}, results).ok());
    return results.empty() ? std::vector<float>() : results[0].scores;
  });
}

TEST_F(Repeats, Selection) {
  std::mt19937 random(6);
  std::vector<float> scores(5000);
  for (float& x : scores) x = static_cast<float>(random() % 400);  // many ties
  const std::vector<int32_t> none;
  SelectRequest request{.rows = 5000, .budget = 1234};
  request.scores = {scores};
  request.protect = {none};
  ExpectSameBits([&] {
    workspace_->Reset();
    std::vector<SelectResult> results;
    EXPECT_TRUE(CudaSelectLists({&request, 1}, *workspace_, results).ok());
    return results[0].kept[0];
  });
}

}  // namespace
}  // namespace kvtriage
