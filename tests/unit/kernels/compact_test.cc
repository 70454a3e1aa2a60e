#include "kernels/cpu/compact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/cpu/line_plan.h"
#include "tests/support/each_target.h"
#include "tests/support/random_layout.h"
#include "tests/support/random_move.h"

namespace kvtriage {
namespace {

bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// Memory that starts on a cache line, so that streamed stores are used where strides allow them.
class Memory {
 public:
  explicit Memory(std::span<const std::byte> bytes)
      : size_(bytes.size()), bytes_(new (std::align_val_t{64}) std::byte[bytes.size() + 64]) {
    std::memcpy(bytes_.get(), bytes.data(), size_);
  }
  std::byte* data() { return bytes_.get(); }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  size_t size_;
  std::unique_ptr<std::byte[], Free> bytes_;
};

// One of every size of elements.
constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF8E4M3};

// One random move; every byte of the target buffer is compared, so nothing but moved rows may
// change.
void CheckRandomMove(uint32_t seed, uint32_t most_rows) {
  RandomMove move(seed, most_rows);
  Memory source(move.source), target(move.target);
  Memory& written_to = move.in_place ? source : target;
  move.request.from.base = source.data() + move.shift;
  move.request.to.base = written_to.data() + move.shift;
  ThreadTeam team(1 + static_cast<int>(seed % 16));
  MoveResult result;
  MoveRows({&move.request, 1}, team, result);
  EXPECT_EQ(result.bytes_written, move.bytes_written);
  ASSERT_TRUE(SameBytes(written_to.bytes(), move.right));
  if (!move.in_place) {
    ASSERT_TRUE(SameBytes(source.bytes(), move.source));
  }
}

TEST(MoveTest, RandomGeometriesEqualGatherThenWrite) {
  ForEachTarget([] {
    for (uint32_t seed = 0; seed < 400; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      ASSERT_NO_FATAL_FAILURE(CheckRandomMove(seed, 200));
    }
  });
}

TEST(MoveTest, LargeRandomMovesEqualGatherThenWrite) {
  // Beyond the size from which stores go past the caches.
  for (uint32_t seed = 1000; seed < 1008; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(CheckRandomMove(seed, 20000));
  }
}

// A layout that lets stores go past the caches, large enough that they do, in place and to a copy.
void CheckLargeMove(const ViewLayout& layout, uint32_t rows) {
  std::mt19937 random(layout.block_slots);
  const uint32_t blocks = static_cast<uint32_t>(CeilDiv(rows, layout.block_slots));
  const std::vector<int32_t> table = RandomTable(blocks, layout.num_blocks, random);
  std::vector<int32_t> kept;
  for (uint32_t p = 0; p < rows; ++p) {
    if (random() % 2 == 0) kept.push_back(static_cast<int32_t>(p));
  }
  const std::vector<std::byte> source = RandomBytes(LayoutBytes(layout), random);
  for (const bool in_place : {true, false}) {
    std::vector<std::byte> right = source;
    MoveRequest request{.from = {nullptr, layout},
                        .from_rows = {table.data(), 0, rows},
                        .to = {nullptr, layout},
                        .to_rows = {table.data(), 0, static_cast<uint32_t>(kept.size())}};
    request.kept.assign(layout.heads, kept);
    const uint64_t bytes = MoveByHand(request, in_place, source, 0, right, 0);
    ASSERT_GT(bytes, uint64_t{1} << 20);
    ForEachTarget([&] {
      Memory source_memory(source), copy(source);
      Memory& written_to = in_place ? source_memory : copy;
      request.from.base = source_memory.data();
      request.to.base = written_to.data();
      ThreadTeam team(3);
      MoveResult result;
      MoveRows({&request, 1}, team, result);
      EXPECT_TRUE(SameBytes(written_to.bytes(), right));
      EXPECT_EQ(result.bytes_written, bytes);
    });
  }
}

TEST(MoveTest, LargeAlignedMovesOnEveryTarget) {
  const auto none = [] { return uint64_t{0}; };
  for (const uint32_t slots : {16u, 48u, 1000u}) {
    for (const DType type : kTypes) {
      SCOPED_TRACE(testing::Message() << "block " << slots << " of " << DTypeName(type));
      const uint32_t rows = 4500;
      const LayoutShape shape{.num_blocks = rows / slots + 3,
                              .block_slots = slots,
                              .heads = 4,
                              .row_elems = IsF8(type) ? 128u : 64u,
                              .dtype = type};
      for (const std::vector<int>& order : {std::vector<int>{3, 2, 1, 0}, {2, 3, 1, 0}}) {
        ASSERT_NO_FATAL_FAILURE(CheckLargeMove(NestAxes(shape, order, none), rows));
      }
    }
  }
}

// https://github.com/ggml-org/llama.cpp/issues/12253
// https://github.com/ggml-org/llama.cpp/pull/14189
TEST(MoveTest, RowsMovedWhileRead) {
  constexpr uint32_t kRows = 4096, kBlock = 16;
  std::vector<std::vector<int32_t>> lists(3);
  for (int32_t p = 1; p < static_cast<int32_t>(kRows); ++p) lists[0].push_back(p);
  for (int32_t p = 0; p < static_cast<int32_t>(kRows); p += 2) lists[1].push_back(p);
  lists[2] = {kRows - 1};
  std::mt19937 random(11);
  const std::vector<int32_t> table = RandomTable(kRows / kBlock, kRows / kBlock, random);
  for (const uint32_t row_bytes : {1u, 2u, 7u, 64u, 100u, 256u, 1024u}) {
    for (const int threads : {1, 2, 5, 16}) {
      ThreadTeam team(threads);
      for (const std::vector<int32_t>& kept : lists) {
        SCOPED_TRACE(testing::Message()
                     << row_bytes << " bytes, " << threads << " threads, " << kept.size());
        ViewLayout layout{.block_stride = uint64_t{3} * kBlock * row_bytes,
                          .head_stride = uint64_t{kBlock} * row_bytes,
                          .slot_stride = row_bytes,
                          .num_blocks = kRows / kBlock,
                          .block_slots = kBlock,
                          .heads = 3,
                          .opaque_row_bytes = row_bytes};
        std::vector<std::byte> memory(LayoutBytes(layout));
        const KvView view{memory.data(), layout};
        const SequenceRows rows{table.data(), 0, kRows};
        // Row r of head h is full of the value r (mod 251) + h.
        for (uint32_t head = 0; head < 3; ++head) {
          for (uint32_t p = 0; p < kRows; ++p) {
            std::memset(RowAddress(view, rows, head, p), static_cast<int>(p % 251 + head),
                        row_bytes);
          }
        }
        MoveRequest request{.from = view,
                            .from_rows = rows,
                            .to = view,
                            .to_rows = {table.data(), 0, static_cast<uint32_t>(kept.size())}};
        request.kept.assign(3, kept);
        MoveResult result;
        MoveRows({&request, 1}, team, result);
        for (uint32_t head = 0; head < 3; ++head) {
          for (uint32_t j = 0; j < kept.size(); ++j) {
            const std::byte* row = RowAddress(view, rows, head, j);
            const auto value = static_cast<std::byte>(kept[j] % 251 + static_cast<int>(head));
            ASSERT_TRUE(std::all_of(row, row + row_bytes, [&](std::byte b) { return b == value; }))
                << "row " << j;
          }
        }
      }
    }
  }
}

// https://github.com/sgl-project/sglang/pull/32477
// https://github.com/vllm-project/vllm/issues/42496
// https://github.com/vllm-project/vllm/issues/50749
TEST(MoveTest, UnwrittenRowsLeak) {
  constexpr uint32_t kBlock = 16;
  const auto none = [] { return uint64_t{0}; };
  for (const std::vector<int>& order : {std::vector<int>{3, 2, 1, 0}, {2, 3, 1, 0}}) {
    for (uint32_t r = 0; r < kBlock; ++r) {
      const uint32_t rows = kBlock * 3 + r;
      const LayoutShape shape{
          .num_blocks = 5, .block_slots = kBlock, .heads = 2, .row_elems = 8, .dtype = DType::kF32};
      const ViewLayout layout = NestAxes(shape, order, none);
      const std::vector<int32_t> table = {3, 1, 4, 2};  // block 0 belongs to nobody
      std::vector<int32_t> kept;
      for (int32_t p = 1; p < static_cast<int32_t>(rows); p += 1 + p % 3) kept.push_back(p);
      std::vector<std::vector<float>> moved;
      for (const float filler : {std::numeric_limits<float>::quiet_NaN(), 1e4f}) {
        std::vector<float> memory(LayoutBytes(layout) / sizeof(float), filler);
        const KvView view{reinterpret_cast<std::byte*>(memory.data()), layout};
        const SequenceRows sequence{table.data(), 0, rows};
        const auto element = [&](uint32_t head, uint32_t p, uint32_t e) {
          return reinterpret_cast<float*>(RowAddress(view, sequence, head, p) +
                                          e * layout.elem_stride);
        };
        for (uint32_t head = 0; head < 2; ++head) {
          for (uint32_t p = 0; p < rows; ++p) {
            for (uint32_t e = 0; e < 8; ++e) {
              *element(head, p, e) = static_cast<float>(p * 100 + head * 10 + e);
            }
          }
        }
        MoveRequest request{.from = view,
                            .from_rows = sequence,
                            .to = view,
                            .to_rows = {table.data(), 0, static_cast<uint32_t>(kept.size())}};
        request.kept.assign(2, kept);
        ThreadTeam team(2);
        MoveResult result;
        MoveRows({&request, 1}, team, result);
        std::vector<float>& got = moved.emplace_back();
        for (uint32_t head = 0; head < 2; ++head) {
          for (uint32_t j = 0; j < kept.size(); ++j) {
            for (uint32_t e = 0; e < 8; ++e) {
              got.push_back(*element(head, j, e));
              ASSERT_EQ(got.back(), static_cast<float>(kept[j] * 100 + head * 10 + e));
            }
          }
        }
        // Nothing behind the sequence was written: as many fillers as before.
        const size_t left =
            static_cast<size_t>(std::count_if(memory.begin(), memory.end(), [&](float x) {
              return std::memcmp(&x, &filler, sizeof x) == 0;
            }));
        EXPECT_EQ(left, memory.size() - size_t{2} * rows * 8);
      }
      EXPECT_EQ(moved[0], moved[1]);
    }
  }
}

// https://github.com/vllm-project/vllm/pull/57477
// https://github.com/LMCache/LMCache/issues/4870
// https://github.com/LMCache/LMCache/pull/2826
TEST(MoveTest, PaddedStrides) {
  // 1024 of 19008 bytes of a block are used; the rest has to stay as it is.
  ViewLayout rows{.block_stride = 19008,
                  .head_stride = 32,
                  .slot_stride = 64,
                  .elem_stride = 2,
                  .num_blocks = 20,
                  .block_slots = 16,
                  .heads = 2,
                  .row_elems = 16,
                  .dtype = DType::kF16};
  ViewLayout transposed = rows;
  transposed.head_stride = 512;
  transposed.slot_stride = 2;
  transposed.elem_stride = 32;
  for (const ViewLayout& layout : {rows, transposed}) {
    std::mt19937 random(5);
    const std::vector<int32_t> table = RandomTable(18, 20, random);
    const std::vector<std::byte> source = RandomBytes(19008 * 20, random);
    Memory memory(source);
    std::vector<int32_t> kept;
    for (int32_t p = 0; p < 280; ++p) {
      if (random() % 3 != 0) kept.push_back(p);
    }
    MoveRequest request{.from = {memory.data(), layout},
                        .from_rows = {table.data(), 4, 280},
                        .to = {memory.data(), layout},
                        .to_rows = {table.data(), 4, static_cast<uint32_t>(kept.size())}};
    request.kept.assign(2, kept);
    std::vector<std::byte> right = source;
    MoveByHand(request, true, source, 0, right, 0);
    ThreadTeam team(2);
    MoveResult result;
    MoveRows({&request, 1}, team, result);
    ASSERT_TRUE(SameBytes(memory.bytes(), right));
    for (uint64_t block = 0; block < 20; ++block) {
      ASSERT_EQ(std::memcmp(memory.data() + block * 19008 + 1024, &source[block * 19008 + 1024],
                            19008 - 1024),
                0);
    }
  }
}

TEST(MoveTest, KeysAndValuesOfOneRowMoveTogether) {
  // [block][slot][head][K then V]: two views over the same bytes, moved in one call.
  constexpr uint32_t kRows = 100;
  ViewLayout layout{.block_stride = 16 * 3 * 48,
                    .head_stride = 48,
                    .slot_stride = 3 * 48,
                    .elem_stride = 2,
                    .num_blocks = 7,
                    .block_slots = 16,
                    .heads = 3,
                    .row_elems = 8,
                    .dtype = DType::kBF16};
  std::mt19937 random(9);
  const std::vector<int32_t> table = RandomTable(7, 7, random);
  const std::vector<std::byte> source = RandomBytes(7 * 16 * 3 * 48, random);
  Memory memory(source);
  std::vector<int32_t> kept;
  for (int32_t p = 0; p < 100; p += 3) kept.push_back(p);
  std::vector<MoveRequest> requests(2);
  std::vector<std::byte> right = source;
  uint64_t bytes = 0;
  for (size_t i = 0; i < 2; ++i) {
    ViewLayout view = layout;
    view.row_elems = i == 0 ? 8 : 16;  // dk 8, dv 16
    const uint64_t offset = i == 0 ? 0 : 16;
    requests[i] = {.from = {memory.data() + offset, view},
                   .from_rows = {table.data(), 0, kRows},
                   .to = {memory.data() + offset, view},
                   .to_rows = {table.data(), 0, static_cast<uint32_t>(kept.size())}};
    requests[i].kept.assign(3, kept);
    bytes += MoveByHand(requests[i], true, source, offset, right, offset);
  }
  ThreadTeam team(4);
  MoveResult result;
  MoveRows(requests, team, result);
  EXPECT_TRUE(SameBytes(memory.bytes(), right));
  EXPECT_EQ(result.bytes_written, bytes);
  EXPECT_EQ(bytes, 33u * 3 * 48);  // row 0 is in place
}

TEST(MoveTest, RowsInPlaceAreNotWritten) {
  // The memory is read-only: a store to a row that stays would end the test.
  constexpr size_t kBytes = 4096;
  void* memory = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const ViewLayout layout{
      .slot_stride = 16, .num_blocks = 1, .block_slots = 256, .heads = 1, .opaque_row_bytes = 16};
  const int32_t table[] = {0};
  std::vector<int32_t> kept(200);
  std::iota(kept.begin(), kept.end(), 0);
  const KvView view{static_cast<std::byte*>(memory), layout};
  MoveRequest request{
      .from = view, .from_rows = {table, 0, 256}, .to = view, .to_rows = {table, 0, 200}};
  request.kept.emplace_back(kept);
  ThreadTeam team(2);
  MoveResult result{.bytes_written = 7};
  MoveRows({&request, 1}, team, result);
  EXPECT_EQ(result.bytes_written, 0u);
  munmap(memory, kBytes);
}

// Address space without memory behind it; only touched pages exist.
class SparseMemory {
 public:
  explicit SparseMemory(uint64_t size) : size_(size) {
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
  }
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  std::byte* data() { return data_; }

 private:
  uint64_t size_;
  std::byte* data_ = nullptr;
};

// https://github.com/vllm-project/vllm/issues/1486
// https://github.com/vllm-project/vllm/issues/50427
// https://github.com/vllm-project/vllm-xpu-kernels/pull/445
// https://github.com/vllm-project/vllm/issues/52109
// https://github.com/syv-ai/qwen38-27b-rtx3090/issues/86
TEST(MoveTest, OffsetOverflows32Bits) {
  // Block 2066 begins 2,147,978,880 elements and 4,295,957,760 bytes behind block 0.
  constexpr uint64_t kBlockElems = 1039680;
  const LayoutShape shape{
      .num_blocks = 2067, .block_slots = 16, .heads = 2, .row_elems = 64, .dtype = DType::kF16};
  SparseMemory memory(kBlockElems * 2 * 2067);
  ASSERT_NE(memory.data(), nullptr);
  for (const std::vector<int>& order : {std::vector<int>{3, 2, 1, 0}, {2, 3, 1, 0}}) {
    ViewLayout layout = NestAxes(shape, order, [] { return uint64_t{0}; });
    layout.block_stride = kBlockElems * 2;
    const KvView view{memory.data(), layout};
    const std::vector<int32_t> table = {2065, 2066, 1};
    const SequenceRows rows{table.data(), 0, 48};
    const auto element = [&](uint32_t head, uint64_t p, uint64_t e) {
      return RowAddress(view, rows, head, p) + e * layout.elem_stride;
    };
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t p = 0; p < 48; ++p) {
        for (uint32_t e = 0; e < 64; ++e) {
          StoreElement(element(head, p, e), DType::kF16,
                       static_cast<float>(head * 1024 + p * 8) + static_cast<float>(e % 8));
        }
      }
    }
    // Rows of every block move, also into block 2066.
    std::vector<int32_t> kept;
    for (int32_t p = 3; p < 48; p += 2) kept.push_back(p);
    MoveRequest request{.from = view,
                        .from_rows = rows,
                        .to = view,
                        .to_rows = {table.data(), 0, static_cast<uint32_t>(kept.size())}};
    request.kept.assign(2, kept);
    ThreadTeam team(2);
    MoveResult result;
    MoveRows({&request, 1}, team, result);
    EXPECT_EQ(result.bytes_written, 2 * kept.size() * 128);
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t j = 0; j < kept.size(); ++j) {
        for (uint32_t e = 0; e < 64; ++e) {
          ASSERT_EQ(LoadElement(element(head, j, e), DType::kF16),
                    static_cast<float>(head * 1024 + static_cast<uint32_t>(kept[j]) * 8) +
                        static_cast<float>(e % 8));
        }
      }
    }
  }
}

TEST(MoveTest, RowsBeyondFourGibibytesOfOneBlock) {
  // One block of 2^25 + 8 rows of 128 bytes: 2^31 elements of 2 bytes and more, 2^32 bytes and
  // more.
  constexpr uint32_t kRows = (1u << 25) + 8;
  SparseMemory memory(uint64_t{kRows} * 128), copy(4096);
  ASSERT_NE(memory.data(), nullptr);
  const ViewLayout layout{.block_stride = uint64_t{kRows} * 128,
                          .slot_stride = 128,
                          .elem_stride = 2,
                          .num_blocks = 1,
                          .block_slots = kRows,
                          .heads = 1,
                          .row_elems = 64,
                          .dtype = DType::kBF16};
  const int32_t table[] = {0};
  const std::vector<int32_t> kept = {5, (1 << 24) + 1, kRows - 1};
  for (size_t j = 0; j < kept.size(); ++j) {
    std::memset(memory.data() + static_cast<uint64_t>(kept[j]) * 128, static_cast<int>(j + 1), 128);
  }
  MoveRequest request{.from = {memory.data(), layout},
                      .from_rows = {table, 0, kRows},
                      .to = {copy.data(), layout},
                      .to_rows = {table, 0, 3}};
  request.kept.emplace_back(kept);
  ThreadTeam team(1);
  MoveResult result;
  MoveRows({&request, 1}, team, result);
  for (size_t j = 0; j < kept.size(); ++j) {
    const std::byte* row = copy.data() + j * 128;
    EXPECT_TRUE(std::all_of(row, row + 128,
                            [&](std::byte b) { return b == static_cast<std::byte>(j + 1); }));
  }
}

TEST(MoveTest, NothingToMove) {
  ThreadTeam team(2);
  MoveResult result{.bytes_written = 9};
  MoveRows({}, team, result);
  EXPECT_EQ(result.bytes_written, 0u);
}

TEST(LinePlanTest, WindowsReadRowsOfTheSequenceOnly) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const DType type = kTypes[random() % 3];
    const uint64_t size = ElementBytes(type);
    const uint32_t slots = 1 + random() % 70, first_slot = random() % 70;
    const uint32_t rows = 1 + random() % 300;
    const uint32_t blocks = static_cast<uint32_t>(CeilDiv(first_slot + rows, slots));
    const LayoutShape shape{
        .num_blocks = blocks, .block_slots = slots, .heads = 1, .row_elems = 4, .dtype = type};
    const int order[] = {2, 3, 1, 0};
    const ViewLayout layout = NestAxes(shape, order, [] { return uint64_t{0}; });
    const std::vector<int32_t> table = RandomTable(blocks, blocks, random);
    std::vector<std::byte> memory(LayoutBytes(layout));
    MoveRequest request{.from = {memory.data(), layout},
                        .from_rows = {table.data(), first_slot, rows},
                        .to = {memory.data(), layout}};
    const std::vector<int32_t> kept = RandomKept(rows, random);
    request.kept.emplace_back(kept);
    std::vector<bool> readable(memory.size(), false);
    for (uint32_t p = 0; p < rows; ++p) {
      const auto at = RowAddress(request.from, request.from_rows, 0, p) - memory.data();
      for (uint64_t b = 0; b < size; ++b) readable[static_cast<uint64_t>(at) + b] = true;
    }
    const HeadMove move{.request = &request};
    const auto plan = std::make_unique<LinePlan>();
    for (size_t first = 0; first < kept.size(); first += plan->rows) {
      PlanLine(move, first, std::min(kept.size() - first, size_t{1} + random() % kMaxLineRows),
               *plan);
      for (size_t i = 0; i < plan->windows; ++i) {
        for (size_t b = 0; b < kWindowBytes; ++b) {
          ASSERT_TRUE(readable[plan->window_offset[i] + b]);
        }
      }
      for (size_t i = 0; i < plan->cache_lines; ++i) {
        ASSERT_TRUE(readable[plan->cache_line_offset[i]]);
      }
    }
  }
}

}  // namespace
}  // namespace kvtriage
