#include "service/policy/view_geometry.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/error.h"

namespace kvtriage {
namespace {

using Wide = __int128;
constexpr Wide kMax = (Wide{1} << 63) - 1;
constexpr Wide kTooLarge = Wide{1} << 100;  // stands for anything beyond

Wide CappedMul(Wide a, Wide b) { return b != 0 && a > kTooLarge / b ? kTooLarge : a * b; }

// Span and packed size in 128 bits; -1 when either does not fit 63.
Wide OracleSpan(const ViewLayout& v) {
  const Wide row_elems = v.opaque() ? 1 : Wide{v.row_elems};
  const Wide unit = v.opaque() ? Wide{v.opaque_row_bytes} : Wide{ElementBytes(v.dtype)};
  const Wide elem_stride = v.opaque() ? 0 : Wide{v.elem_stride};
  const Wide span =
      unit + (row_elems - 1) * elem_stride + Wide{v.block_slots - 1} * Wide{v.slot_stride} +
      Wide{v.heads - 1} * Wide{v.head_stride} + Wide{v.num_blocks - 1} * Wide{v.block_stride};
  Wide packed = unit;
  for (const Wide extent : {row_elems, Wide{v.block_slots}, Wide{v.heads}, Wide{v.num_blocks}}) {
    packed = CappedMul(packed, extent);
  }
  return span > kMax || packed > kMax ? -1 : span;
}

void ExpectSpan(const ViewLayout& view) {
  const Wide want = OracleSpan(view);
  const auto got = ViewSpan(view);
  ASSERT_EQ(got.ok(), want >= 0) << view.num_blocks << " " << view.block_slots << " " << view.heads
                                 << " " << view.row_elems << " " << view.block_stride;
  if (got.ok()) {
    ASSERT_EQ(Wide{*got}, want);
  } else {
    ASSERT_EQ(GetErrorInfo(got.status())->reason, ErrorReason::kGeometryOverflow);
  }
}

constexpr uint32_t kExtents[] = {1,     2,          3,          255,        256,        65535,
                                 65536, (1u << 24), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF};
constexpr uint64_t kStrides[] = {0,
                                 1,
                                 2,
                                 64,
                                 4096,
                                 uint64_t{1} << 31,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 33,
                                 (uint64_t{1} << 63) - 1,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0} - 1023,
                                 ~uint64_t{0}};

// 12 values in each of 5 places: 248,832 geometries.
// Kind: size arithmetic that wraps. https://github.com/triton-inference-server/server/pull/8182
// https://github.com/triton-inference-server/server/issues/3563
TEST(ViewSpan, EqualsWideArithmeticAtEveryBoundary) {
  ViewLayout view;
  for (const uint32_t blocks : kExtents) {
    for (const uint32_t slots : kExtents) {
      for (const uint32_t heads : kExtents) {
        for (const uint32_t elems : kExtents) {
          for (const uint64_t stride : kStrides) {
            view.num_blocks = blocks;
            view.block_slots = slots;
            view.heads = heads;
            view.row_elems = elems;
            view.elem_stride = 4;
            view.slot_stride = uint64_t{elems} * 4;
            view.head_stride = stride;
            view.block_stride = stride;
            ASSERT_NO_FATAL_FAILURE(ExpectSpan(view));
          }
        }
      }
    }
  }
}

TEST(ViewSpan, EqualsWideArithmeticOnRandomNumbers) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  // Numbers of every bit length are equally likely, so both outcomes are common.
  const auto extent = [&] { return static_cast<uint32_t>(random() >> (33 + random() % 31)) + 1; };
  const auto stride = [&] { return random() >> (random() % 64); };
  size_t fits = 0;
  constexpr size_t kRounds = 500'000;
  for (size_t round = 0; round < kRounds; ++round) {
    ViewLayout view;
    view.dtype = random() % 2 == 0 ? DType::kF32 : DType::kBF16;
    if (random() % 4 == 0) view.opaque_row_bytes = extent();
    view.row_elems = view.opaque() ? 0 : extent();
    view.elem_stride = view.opaque() ? 0 : stride();
    view.num_blocks = extent();
    view.block_slots = extent();
    view.heads = extent();
    view.slot_stride = stride();
    view.head_stride = stride();
    view.block_stride = stride();
    ASSERT_NO_FATAL_FAILURE(ExpectSpan(view)) << "round " << round;
    fits += OracleSpan(view) >= 0 ? 1 : 0;
  }
  EXPECT_GT(fits, kRounds / 50);
  EXPECT_LT(fits, kRounds - kRounds / 50);
}

TEST(ViewSpan, SixtyThreeBitsIsTheEdge) {
  ViewLayout view;
  view.num_blocks = 2;
  view.heads = view.block_slots = 1;
  view.opaque_row_bytes = 1;
  view.block_stride = (uint64_t{1} << 63) - 2;
  EXPECT_EQ(ViewSpan(view).value(), (uint64_t{1} << 63) - 1);
  view.block_stride += 1;
  EXPECT_EQ(GetErrorInfo(ViewSpan(view).status())->reason, ErrorReason::kGeometryOverflow);
}

TEST(TensorSpan, EqualsWideArithmetic) {
  constexpr uint64_t kSeed = 8;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 100'000; ++round) {
    TensorSpec t;
    Wide span = 4, packed = 4;
    uint32_t* const extents[] = {&t.layers, &t.rows, &t.heads, &t.elems};
    uint64_t* const strides[] = {&t.layer_stride, &t.row_stride, &t.head_stride, &t.elem_stride};
    for (int axis = 0; axis < 4; ++axis) {
      *extents[axis] = static_cast<uint32_t>(random() >> (33 + random() % 31)) + 1;
      *strides[axis] = random() >> (random() % 64);
      span += Wide{*extents[axis] - 1} * Wide{*strides[axis]};
      packed = CappedMul(packed, *extents[axis]);
    }
    const auto got = TensorSpan(t);
    ASSERT_EQ(got.ok(), span <= kMax && packed <= kMax) << "round " << round;
    if (got.ok()) {
      ASSERT_EQ(Wide{*got}, span) << "round " << round;
    }
  }
}

// Kind: an offset that overflows 32 bits. https://github.com/vllm-project/vllm/issues/1486
// https://github.com/vllm-project/vllm/issues/50427
TEST(ViewSpan, FarBlocksKeepAllBits) {
  ViewLayout view;
  view.dtype = DType::kF16;
  view.num_blocks = 2067;
  view.block_stride = uint64_t{1'039'680} * 2;
  view.block_slots = 16;
  view.heads = 8;
  view.row_elems = 128;
  view.elem_stride = 2;
  view.slot_stride = 8 * 256;
  view.head_stride = 256;
  EXPECT_EQ(ViewSpan(view).value(), 2066 * view.block_stride + 16 * 8 * 256);
  EXPECT_GT(ViewSpan(view).value(), uint64_t{1} << 32);
}

// ---- nesting
// -------------------------------------------------------------------------------------

struct SmallAxis {
  uint64_t stride, extent;
};

std::vector<SmallAxis> LongAxes(const ViewLayout& v) {
  std::vector<SmallAxis> axes;
  const auto add = [&](uint64_t stride, uint64_t extent) {
    if (extent > 1) axes.push_back({stride, extent});
  };
  add(v.block_stride, v.num_blocks);
  add(v.head_stride, v.heads);
  add(v.slot_stride, v.block_slots);
  if (!v.contiguous_rows()) add(v.elem_stride, v.row_elems);
  std::sort(axes.begin(), axes.end(),
            [](const auto& a, const auto& b) { return a.stride < b.stride; });
  return axes;
}

// Marks every byte of every unit; false when a byte is met twice.
bool MarkBytes(const ViewLayout& v, std::vector<uint8_t>& bytes) {
  bool once = true;
  const uint32_t elems = v.opaque() ? 1 : v.row_elems;
  const uint64_t unit = v.opaque() ? v.opaque_row_bytes : ElementBytes(v.dtype);
  for (uint64_t b = 0; b < v.num_blocks; ++b) {
    for (uint64_t h = 0; h < v.heads; ++h) {
      for (uint64_t s = 0; s < v.block_slots; ++s) {
        for (uint64_t e = 0; e < elems; ++e) {
          const uint64_t at = b * v.block_stride + h * v.head_stride + s * v.slot_stride +
                              (v.opaque() ? 0 : e * v.elem_stride);
          for (uint64_t i = at; i < at + unit; ++i) {
            if (i >= bytes.size()) bytes.resize(i + 1);
            once = once && bytes[i] == 0;
            bytes[i] = 1;
          }
        }
      }
    }
  }
  return once;
}

// The definition, by listing places: at every level, from the smallest stride, the byte range that
// the inner axes cover ends before its next copy begins.
bool SlowNested(const ViewLayout& v) {
  const uint64_t unit = v.contiguous_rows() ? v.row_bytes() : ElementBytes(v.dtype);
  std::vector<uint64_t> places = {0};
  for (const SmallAxis& axis : LongAxes(v)) {
    const uint64_t end = *std::max_element(places.begin(), places.end()) + unit;
    if (axis.stride < end) return false;
    std::vector<uint64_t> more;
    for (uint64_t i = 0; i < axis.extent; ++i) {
      for (const uint64_t place : places) more.push_back(place + i * axis.stride);
    }
    places = std::move(more);
  }
  return true;
}

ViewLayout RandomSmallView(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  ViewLayout v;
  v.num_blocks = 1 + below(4);
  v.heads = 1 + below(3);
  v.block_slots = 1 + below(4);
  v.dtype = below(2) == 0 ? DType::kF32 : DType::kF16;
  const uint64_t element = ElementBytes(v.dtype);
  if (below(4) == 0) {
    v.opaque_row_bytes = 1 + below(9);
  } else {
    v.row_elems = 1 + below(4);
    v.elem_stride = below(2) == 0 ? element : element * below(12);
  }
  v.slot_stride = element * below(24);
  v.head_stride = element * below(40);
  v.block_stride = element * below(64);
  return v;
}

TEST(CheckNested, EqualsTheByteSetDefinition) {
  constexpr uint32_t kSeed = 11;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  int nested = 0;
  constexpr int kRounds = 60'000;
  for (int round = 0; round < kRounds; ++round) {
    const ViewLayout view = RandomSmallView(random);
    const absl::Status status = CheckNested(view);
    ASSERT_EQ(status.ok(), SlowNested(view)) << "round " << round;
    if (status.ok()) {
      ++nested;
      std::vector<uint8_t> bytes;
      ASSERT_TRUE(MarkBytes(view, bytes)) << "overlaps itself, round " << round;
    } else {
      ASSERT_EQ(GetErrorInfo(status)->reason, ErrorReason::kViewNotNested);
    }
  }
  EXPECT_GT(nested, kRounds / 50);
  EXPECT_LT(nested, kRounds - kRounds / 50);
}

// Kind: padded strides. https://github.com/vllm-project/vllm/pull/57477
// https://github.com/LMCache/LMCache/issues/4870
TEST(CheckNested, PaddedAndTransposedPassAndZeroStridesDoNot) {
  ViewLayout view;
  view.dtype = DType::kF16;
  view.num_blocks = 8;
  view.block_slots = 16;
  view.heads = 2;
  view.row_elems = 16;
  view.elem_stride = 2;
  view.slot_stride = 32;
  view.head_stride = 512;
  view.block_stride = 19008;  // 1024 used
  EXPECT_TRUE(CheckNested(view).ok());

  ViewLayout transposed = view;  // [block, head, elem, slot]
  transposed.elem_stride = 32;
  transposed.slot_stride = 2;
  EXPECT_TRUE(CheckNested(transposed).ok());

  for (uint64_t ViewLayout::*stride : {&ViewLayout::block_stride, &ViewLayout::head_stride,
                                       &ViewLayout::slot_stride, &ViewLayout::elem_stride}) {
    ViewLayout zero = view;
    zero.*stride = 0;
    EXPECT_EQ(GetErrorInfo(CheckNested(zero))->reason, ErrorReason::kViewNotNested);
  }
  ViewLayout one_block = view;
  one_block.num_blocks = 1;
  one_block.block_stride = 0;
  EXPECT_TRUE(CheckNested(one_block).ok());
}

TEST(CheckNested, HugeStridesDoNotWrap) {
  ViewLayout view;
  view.num_blocks = 2;
  view.heads = 2;
  view.block_slots = 1;
  view.row_elems = 1;
  view.elem_stride = 4;
  view.head_stride = ~uint64_t{0} - 3;
  view.block_stride = ~uint64_t{0} - 3;  // equal to the other one, so it lies inside its reach
  EXPECT_FALSE(CheckNested(view).ok());
}

}  // namespace
}  // namespace kvtriage
