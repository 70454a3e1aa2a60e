// Rows of tensors of every layout, read through a device's copies and directly.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/core/splitmix64.h"
#include "service/engine/read_rows.h"
#include "tests/support/reason_of.h"
#include "tests/unit/engine/far_memory.h"

namespace kvtriage {
namespace {

// A copier that counts.
class Counting final : public DeviceCopier {
 public:
  explicit Counting(DeviceCopier& copier) : copier_(copier) {}
  absl::Status ToHost(std::span<std::byte> to, const std::byte* from) override {
    ++copies;
    bytes += to.size();
    return copier_.ToHost(to, from);
  }
  absl::Status ToDevice(std::byte* to, std::span<const std::byte> from) override {
    return copier_.ToDevice(to, from);
  }
  uint64_t copies = 0, bytes = 0;

 private:
  DeviceCopier& copier_;
};

class ReadRows : public testing::Test {
 protected:
  // f32 numbers i at place i.
  explicit ReadRows(size_t numbers = 1 << 14) : memory_(numbers) {
    for (size_t i = 0; i < numbers; ++i) memory_[i] = static_cast<float>(i);
    auto* bytes = reinterpret_cast<std::byte*>(memory_.data());
    mapping_ = *device_.Open(device_.Lend(bytes, numbers * sizeof(float), false), nullptr);
    copier_ = *device_.MakeCopier();
  }
  // Strides in numbers.
  TensorView View(uint32_t rows, uint32_t heads, uint32_t elems, uint64_t row, uint64_t head,
                  uint64_t elem) const {
    return {mapping_->data(), DType::kF32, rows, heads, elems, row * 4, head * 4, elem * 4};
  }

  std::vector<float> memory_;
  FarDevice device_{0};
  std::unique_ptr<Mapping> mapping_;
  std::unique_ptr<DeviceCopier> copier_;
};

TEST_F(ReadRows, EveryLayoutGivesTheNumbersInOrder) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    auto pick = [seed, at = uint64_t{0}](uint64_t most) mutable {
      return 1 + SplitMix64(seed, at++) % most;
    };
    const auto rows = static_cast<uint32_t>(pick(6)), heads = static_cast<uint32_t>(pick(5)),
               elems = static_cast<uint32_t>(pick(9));
    const uint64_t row = pick(900), head = pick(900), elem = pick(60);
    const TensorView view = View(rows, heads, elems, row, head, elem);
    const uint32_t newest = static_cast<uint32_t>(pick(rows));
    std::vector<float> expected;
    for (uint64_t r = rows - newest; r < rows; ++r) {
      for (uint64_t h = 0; h < heads; ++h) {
        for (uint64_t e = 0; e < elems; ++e) {
          expected.push_back(static_cast<float>(r * row + h * head + e * elem));
        }
      }
    }
    EXPECT_EQ(NewestRows(view, newest, copier_.get()).value(), expected);
    TensorView near = view;
    near.base = reinterpret_cast<const std::byte*>(memory_.data());
    EXPECT_EQ(NewestRows(near, newest, nullptr).value(), expected);
  }
}

TEST_F(ReadRows, PackedRowsAreOneCopyAndGapsStayBehind) {
  Counting packed(*copier_);
  EXPECT_TRUE(NewestRows(View(8, 4, 16, 64, 16, 1), 8, &packed).ok());
  EXPECT_EQ(packed.copies, 1u);
  EXPECT_EQ(packed.bytes, 8u * 4 * 16 * 4);
  Counting apart(*copier_);
  EXPECT_TRUE(NewestRows(View(8, 4, 16, 2000, 16, 1), 8, &apart).ok());
  EXPECT_EQ(apart.copies, 8u);
  EXPECT_EQ(apart.bytes, 8u * 4 * 16 * 4);
}

TEST_F(ReadRows, NothingIsReadOfNothing) {
  EXPECT_TRUE(NewestRows(TensorView(), 3, copier_.get())->empty());
  EXPECT_TRUE(NewestRows(View(3, 2, 4, 8, 4, 1), 0, copier_.get())->empty());
}

TEST_F(ReadRows, ElementsTooFarApartAreRefused) {
  const TensorView view = View(1, 1, 2, 1, 1, uint64_t{1} << 25);
  EXPECT_EQ(ReasonOf(NewestRows(view, 1, copier_.get()).status()), "unsupported");
}

}  // namespace
}  // namespace kvtriage
