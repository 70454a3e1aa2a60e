// Rows copied by number, between any two layouts, against plain loops.
#include "kernels/cpu/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/core/checked_math.h"
#include "tests/support/each_device.h"
#include "tests/support/random_layout.h"

namespace kvtriage {
namespace {

struct Stored {
  std::vector<std::byte> memory;
  std::vector<int32_t> table;
  KvView view;
  SequenceRows rows;

  Stored(uint32_t count, LayoutShape shape, std::mt19937& random) {
    shape.block_slots = 1 + static_cast<uint32_t>(random() % 20);
    const uint32_t first_slot = random() % shape.block_slots;
    const auto blocks = static_cast<uint32_t>(CeilDiv(first_slot + count, shape.block_slots));
    shape.num_blocks = blocks + 1;
    view.layout = RandomLayout(shape, random);
    memory.resize(LayoutBytes(view.layout));
    for (std::byte& b : memory) b = static_cast<std::byte>(random());
    table = RandomTable(blocks, shape.num_blocks, random);
    view.base = memory.data();
    rows = {table.data(), first_slot, count};
  }
};

std::vector<int32_t> SomeRows(uint32_t count, uint32_t of, std::mt19937& random) {
  std::vector<int32_t> all(of);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

void CopyByHand(const RowCopy& copy) {
  const ViewLayout& from = copy.from.layout;
  const ViewLayout& to = copy.to.layout;
  const uint64_t size = from.opaque() ? 1 : ElementBytes(from.dtype);
  const uint64_t elems = from.opaque() ? from.opaque_row_bytes : from.row_elems;
  for (uint32_t j = 0; j < copy.count; ++j) {
    const uint64_t source = copy.from_row.empty() ? j : static_cast<uint64_t>(copy.from_row[j]);
    const uint64_t target = copy.to_row.empty() ? j : static_cast<uint64_t>(copy.to_row[j]);
    for (uint32_t h = 0; h < from.heads; ++h) {
      for (uint64_t e = 0; e < elems; ++e) {
        std::memcpy(
            RowAddress(copy.to, copy.to_rows, h, target) + e * (to.opaque() ? 1 : to.elem_stride),
            RowAddress(copy.from, copy.from_rows, h, source) +
                e * (from.opaque() ? 1 : from.elem_stride),
            size);
      }
    }
  }
}

using FuseTest = EachDevice;
KVTRIAGE_ON_EACH_DEVICE(FuseTest);

TEST_P(FuseTest, WritesTheNamedRowsAndNoOtherByte) {
  for (uint32_t seed = 0; seed < Times(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    LayoutShape shape{.heads = 1 + seed % 3, .row_elems = 1 + seed % 70};
    shape.dtype = seed % 2 == 0 ? DType::kF32 : DType::kBF16;
    if (seed % 7 == 0) {
      shape.row_elems = 0;
      shape.opaque_row_bytes = 1 + seed;
    }
    const uint32_t count = static_cast<uint32_t>(random() % 500);
    const bool gather = seed % 2 == 1;
    const Stored dense(count + 1, shape, random);
    Stored paged(count + 300, shape, random);
    Stored target(gather ? count + 1 : count + 300, shape, random);
    const std::vector<int32_t> rows = SomeRows(count, count + 300, random);
    const Stored& source = gather ? paged : dense;
    RowCopy copy{source.view, source.rows, {}, target.view, target.rows, {}, count};
    (gather ? copy.from_row : copy.to_row) = rows;
    const std::vector<std::byte> before = target.memory;
    CopyByHand(copy);
    const std::vector<std::byte> want = target.memory;
    std::copy(before.begin(), before.end(), target.memory.begin());
    emulation::SetOptions({.seed = seed % 4});
    for (int time = 0; time < 2; ++time) {  // doing it twice gives the same bytes
      RowCopyResult result;
      ASSERT_TRUE(CopyRows({&copy, 1}, result, 1 + static_cast<int>(seed % 3)).ok());
      EXPECT_EQ(result.bytes_written,
                uint64_t{count} * shape.heads * source.view.layout.row_bytes());
      ASSERT_TRUE(target.memory == want);
    }
  }
}

}  // namespace
}  // namespace kvtriage
