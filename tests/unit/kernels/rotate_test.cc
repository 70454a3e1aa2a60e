// Rotation of stored keys: every layout, type, pairing, instruction set and thread count gives the
// bits of one row turned by plain loops, and nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "kernels/core/checked_math.h"
#include "kernels/core/rope_speeds.h"
#include "tests/support/each_device.h"
#include "tests/support/random_layout.h"

namespace kvtriage {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

// Keys of one layer in memory of any strides; every byte is random.
struct StoredKeys {
  std::vector<std::byte> memory;
  std::vector<int32_t> table;
  KvView view;
  SequenceRows rows;

  StoredKeys(uint32_t count, uint32_t heads, uint32_t elems, DType type, bool transposed,
             std::mt19937& random) {
    LayoutShape shape{.block_slots = transposed ? 32u : 1 + static_cast<uint32_t>(random() % 40),
                      .heads = heads,
                      .row_elems = elems,
                      .dtype = type};
    const uint32_t first_slot = random() % shape.block_slots;
    const auto blocks = static_cast<uint32_t>(CeilDiv(first_slot + count, shape.block_slots));
    shape.num_blocks = blocks + 1;
    constexpr int kTransposed[] = {2, 3, 1, 0};
    view.layout =
        transposed ? NestAxes(shape, kTransposed, [] { return 0; }) : RandomLayout(shape, random);
    memory.resize(LayoutBytes(view.layout));
    for (std::byte& b : memory) b = static_cast<std::byte>(random());
    table = RandomTable(blocks, shape.num_blocks, random);
    view.base = memory.data();
    rows = {table.data(), first_slot, count};
    std::normal_distribution<float> normal;
    for (uint32_t p = 0; p < count; ++p) {
      for (uint32_t h = 0; h < heads; ++h) {
        for (uint32_t e = 0; e < elems; ++e) StoreElement(At(h, p, e), type, normal(random));
      }
    }
  }
  std::byte* At(uint32_t head, uint32_t p, uint32_t e) const {
    return RowAddress(view, rows, head, p) + e * view.layout.elem_stride;
  }
  std::vector<float> Row(uint32_t head, uint32_t p) const {
    std::vector<float> row;
    for (uint32_t e = 0; e < view.layout.row_elems; ++e) {
      row.push_back(LoadElement(At(head, p, e), view.layout.dtype));
    }
    return row;
  }
};

Rope RandomRope(uint32_t elems, std::mt19937& random) {
  Rope rope;
  rope.pairing = random() % 2 == 0 ? RopePairing::kHalf : RopePairing::kInterleaved;
  rope.rotary_dim = 2 * (1 + static_cast<uint32_t>(random() % (elems / 2)));
  rope.offset = static_cast<uint32_t>(random() % (elems - rope.rotary_dim + 1));
  rope.speeds = RopeSpeeds({.theta = 1e4}, rope.rotary_dim);
  return rope;
}

std::vector<int32_t> RandomPositions(uint32_t rows, std::mt19937& random) {
  std::vector<int32_t> positions(rows);
  for (int32_t& p : positions) p = static_cast<int32_t>(random() % 5000);
  return positions;
}

RowPositions ListOf(const std::vector<int32_t>& list, uint32_t planes = 1) {
  return {0, list.data(), static_cast<uint32_t>(list.size() / planes)};
}

// What the request should do to its keys, by plain loops.
void RotateByHand(const RotateRequest& request, const StoredKeys& keys) {
  const ViewLayout& layout = keys.view.layout;
  const Rope& rope = *request.rope;
  std::vector<float> cosines(rope.rotary_dim / 2), sines(rope.rotary_dim / 2);
  for (uint32_t h = 0; h < layout.heads; ++h) {
    for (uint32_t j = 0; j < request.count; ++j) {
      const uint64_t was =
          request.from_rows.empty() ? j : static_cast<uint64_t>(request.from_rows[h][j]);
      const RowPosition from = request.from.At(was, rope.multi_plane());
      const RowPosition to = request.to.At(j, rope.multi_plane());
      if (from == to) continue;
      const uint32_t p = request.first_row + j;
      std::vector<float> row = keys.Row(h, p);
      TurnBetween(rope, request.mode, from, to, cosines, sines);
      TurnRow(rope, cosines, sines, row.data());
      for (uint32_t e = rope.offset; e < rope.offset + rope.rotary_dim; ++e) {
        StoreElement(keys.At(h, p, e), layout.dtype, row[e]);
      }
    }
  }
}

class RotateTest : public EachDevice {
 protected:
  uint64_t Rotate(const RotateRequest& request, int threads = 2) {
    RotateResult result;
    EXPECT_TRUE(EachDevice::Rotate({&request, 1}, result, threads).ok());
    return result.bytes_written;
  }

  // Turns all rows of `keys` by a distance.
  void Shift(StoredKeys& keys, const Rope& rope, uint64_t from, uint64_t to) {
    RotateRequest request;
    request.keys = {keys.view};
    request.rows = keys.rows;
    request.count = keys.rows.rows;
    request.rope = &rope;
    request.from.first = from;
    request.to.first = to;
    Rotate(request);
  }
};
KVTRIAGE_ON_EACH_DEVICE(RotateTest);

// Channels outside the rotated range keep their bytes, wherever it lies.
// https://github.com/AI-Hypercomputer/maxtext/pull/4615
TEST_P(RotateTest, EveryLayoutTypeAndInstructionSetGivesTheSameBits) {
  ForEachWay([this] {
    for (uint32_t seed = 0; seed < Times(40); ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      std::mt19937 random(seed);
      const uint32_t elems = seed % 8 == 0 ? 576 : 2 + static_cast<uint32_t>(random() % 150);
      const uint32_t rows = 1 + static_cast<uint32_t>(random() % 120);
      StoredKeys keys(rows, 1 + seed % 3, elems, kTypes[random() % 5], seed % 4 == 1, random);
      const Rope rope = RandomRope(elems, random);
      const std::vector<int32_t> from = RandomPositions(rows, random);
      std::vector<int32_t> to = RandomPositions(rows, random);
      to[0] = from[0];
      RotateRequest request;
      request.keys = {keys.view};
      request.rows = keys.rows;
      request.first_row = static_cast<uint32_t>(random() % rows);
      request.count = rows - request.first_row;
      request.rope = &rope;
      request.mode = seed % 2 == 0 ? AngleMode::kExact : AngleMode::kFp32Table;
      request.from = ListOf(from);
      request.to = ListOf(to);
      const std::vector<std::byte> before = keys.memory;
      RotateByHand(request, keys);
      const std::vector<std::byte> want = keys.memory;
      std::copy(before.begin(), before.end(), keys.memory.begin());
      Rotate(request, 1 + seed % 3);
      ASSERT_TRUE(keys.memory == want);
    }
  });
}

TEST_P(RotateTest, LayersAndHeadsTurnFromTheirOwnRows) {
  std::mt19937 random(11);
  std::vector<StoredKeys> layers;
  for (int l = 0; l < 3; ++l) layers.emplace_back(90, 2, 24, DType::kBF16, l == 1, random);
  const Rope rope = RandomRope(24, random);
  const std::vector<int32_t> from = RandomPositions(300, random);
  std::vector<std::vector<int32_t>> kept(6);
  for (auto& list : kept) {
    for (int j = 0; j < 90; ++j) list.push_back(static_cast<int32_t>(random() % 300));
  }
  for (const AngleMode mode : {AngleMode::kExact, AngleMode::kFp32Table}) {
    RotateRequest all;
    std::vector<std::vector<std::byte>> want;
    for (size_t l = 0; l < 3; ++l) {
      RotateRequest one;
      one.count = 90;
      one.rope = &rope;
      one.mode = mode;
      one.from = ListOf(from);
      one.from_rows = {kept[2 * l], kept[2 * l + 1]};
      const std::vector<std::byte> before = layers[l].memory;
      RotateByHand(one, layers[l]);
      want.push_back(layers[l].memory);
      std::copy(before.begin(), before.end(), layers[l].memory.begin());
      one.keys = {layers[l].view};
      one.rows = layers[l].rows;
      Rotate(one);
      EXPECT_TRUE(layers[l].memory == want[l]) << "layer " << l;
    }
  }
}

// Kind: multi-axis positions.
// https://github.com/ggml-org/llama.cpp/pull/19928 https://github.com/ggml-org/llama.cpp/pull/13870
TEST_P(RotateTest, PlanesOfMRope) {
  std::mt19937 random(5);
  StoredKeys keys(40, 2, 16, DType::kF32, false, random);
  Rope rope{.rotary_dim = 16, .speeds = RopeSpeeds({.theta = 1e4}, 16), .sections = {4, 2, 2}};
  const std::vector<int32_t> from = RandomPositions(120, random), to = RandomPositions(120, random);
  RotateRequest request;
  request.keys = {keys.view};
  request.rows = keys.rows;
  request.count = 40;
  request.rope = &rope;
  request.from = ListOf(from, 3);
  request.to = ListOf(to, 3);
  const std::vector<std::byte> before = keys.memory;
  RotateByHand(request, keys);
  const std::vector<std::byte> want = keys.memory;
  std::copy(before.begin(), before.end(), keys.memory.begin());
  Rotate(request);
  EXPECT_TRUE(keys.memory == want);
}

// More rows than a slice of the table, more distances than it has entries.
TEST_P(RotateTest, LongSequencesAreCutIntoSlices) {
  if (kSlowFibers && !on_cpu()) GTEST_SKIP() << "144,000 emulated threads";
  std::mt19937 random(6);
  StoredKeys keys(9000, 1, 4, DType::kF32, false, random);
  const Rope rope{.rotary_dim = 4, .speeds = {1, 0.01}};
  std::vector<int32_t> from(9000), to(9000);
  for (int32_t& p : from) p = static_cast<int32_t>(random() % (uint32_t{1} << 31));
  std::iota(to.begin(), to.end(), 0);
  RotateRequest request;
  request.keys = {keys.view};
  request.rows = keys.rows;
  request.count = 9000;
  request.rope = &rope;
  request.from = ListOf(from);
  request.to = {};
  const std::vector<std::byte> before = keys.memory;
  RotateByHand(request, keys);
  const std::vector<std::byte> want = keys.memory;
  std::copy(before.begin(), before.end(), keys.memory.begin());
  EXPECT_EQ(Rotate(request), 9000u * 16);
  EXPECT_TRUE(keys.memory == want);
}

double Norm(const std::vector<float>& row) {
  double squares = 0;
  for (const float x : row) squares += double{x} * x;
  return std::sqrt(squares);
}

TEST_P(RotateTest, ThereAndBackAndTwoTurnsAreOne) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed), same(seed);
    StoredKeys keys(20, 2, 64, DType::kF32, false, random);
    StoredKeys once(20, 2, 64, DType::kF32, false, same);
    const Rope rope = RandomRope(64, random);
    const std::vector<float> before = keys.Row(1, 7);
    Shift(keys, rope, 100, 2100);
    Shift(keys, rope, 2100, 35);
    Shift(once, rope, 100, 35);
    const double tolerance = 4e-6 * Norm(before);
    for (size_t e = 0; e < 64; ++e) {
      EXPECT_NEAR(keys.Row(1, 7)[e], once.Row(1, 7)[e], tolerance);
    }
    Shift(keys, rope, 35, 100);
    for (size_t e = 0; e < 64; ++e) EXPECT_NEAR(keys.Row(1, 7)[e], before[e], tolerance);
  }
}

// Kind: drift of repeated shifts. Each rotation of a 16-bit key rounds once, so a thousand small
// ones are worse than a single large one: move in one step.
// https://github.com/ggml-org/llama.cpp/issues/4097
TEST_P(RotateTest, ManyRoundingsDrift) {
  if (kSlowFibers && !on_cpu()) GTEST_SKIP() << "a thousand grids";
  std::mt19937 random(1);
  const Rope rope{.rotary_dim = 4, .speeds = RopeSpeeds({.theta = 1e4}, 4)};
  const std::vector<float> key = {1, 2, 3, 4};
  const auto error_of = [&](int steps) {
    StoredKeys keys(1, 1, 4, DType::kBF16, false, random);
    const auto put = [&](const std::vector<double>& row) {
      for (uint32_t e = 0; e < 4; ++e) {
        StoreElement(keys.At(0, 0, e), DType::kBF16, static_cast<float>(row[e]));
      }
    };
    const auto exact = [&](double position) {
      std::vector<double> row(4);
      for (size_t j = 0; j < 2; ++j) {
        const double c = std::cos(position * rope.speeds[j]),
                     s = std::sin(position * rope.speeds[j]);
        row[j] = key[j] * c - key[j + 2] * s;
        row[j + 2] = key[j + 2] * c + key[j] * s;
      }
      return row;
    };
    put(exact(2000));
    for (int i = 0; i < steps; ++i) {
      const auto at = static_cast<uint64_t>(2000 - i * (1000 / steps));
      Shift(keys, rope, at, at - static_cast<uint64_t>(1000 / steps));
    }
    double squares = 0;
    for (size_t e = 0; e < 4; ++e) squares += std::pow(keys.Row(0, 0)[e] - exact(1000)[e], 2);
    return std::sqrt(squares) / Norm(key);
  };
  EXPECT_LT(error_of(1), 0x1p-8);
  EXPECT_NEAR(error_of(1000), 0.17, 0.05);
}

}  // namespace
}  // namespace kvtriage
