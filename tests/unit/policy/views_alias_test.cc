// ViewsAlias against byte sets: random pairs of nested views, many of them packed side by side
// inside common outer axes as K and V are.
#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "service/policy/view_geometry.h"

namespace kvtriage {
namespace {

struct TestAxis {
  uint64_t stride, extent;
  friend bool operator==(const TestAxis&, const TestAxis&) = default;
};

enum Role { kBlock, kHead, kSlot, kElem };

void SetAxis(ViewLayout& view, int role, uint64_t stride, uint64_t extent) {
  const auto count = static_cast<uint32_t>(extent);
  switch (role) {
    case kBlock:
      view.block_stride = stride;
      view.num_blocks = count;
      break;
    case kHead:
      view.head_stride = stride;
      view.heads = count;
      break;
    case kSlot:
      view.slot_stride = stride;
      view.block_slots = count;
      break;
    default:
      view.elem_stride = stride;
      view.row_elems = count;
  }
}

// Axes longer than 1 outside the unit, largest stride first.
std::vector<TestAxis> AxesOf(const ViewLayout& v) {
  std::vector<TestAxis> axes = {
      {v.block_stride, v.num_blocks}, {v.head_stride, v.heads}, {v.slot_stride, v.block_slots}};
  if (!v.contiguous_rows()) axes.push_back({v.elem_stride, v.row_elems});
  std::erase_if(axes, [](const TestAxis& axis) { return axis.extent == 1; });
  std::sort(axes.begin(), axes.end(),
            [](const auto& a, const auto& b) { return a.stride > b.stride; });
  return axes;
}

// Builds nested views from the inside out: a random order of the four axes, random gaps.
class ViewMaker {
 public:
  explicit ViewMaker(uint32_t seed) : random_(seed) {}

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  // A view whose outermost axes are `outer` (largest stride first) and whose inside fits `room`
  // bytes (0 = no limit). Nothing when the dice made it too large.
  bool Make(const std::vector<TestAxis>& outer, uint64_t room, ViewLayout& view) {
    view = {};
    view.dtype = Below(2) == 0 ? DType::kF32 : DType::kF16;
    const uint64_t element = ElementBytes(view.dtype);
    std::array<int, 4> roles = {kElem, kSlot, kHead, kBlock};
    if (Below(2) == 0) std::shuffle(roles.begin(), roles.end(), random_);
    for (int role = kBlock; role <= kElem; ++role) SetAxis(view, role, 0, 1);
    uint64_t covered = element;
    const size_t inner = roles.size() - outer.size();
    const bool opaque = Below(4) == 0;
    const uint32_t row_bytes = 1 + Below(12);
    if (opaque) covered = row_bytes;
    for (size_t i = 0; i < roles.size(); ++i) {
      if (opaque && roles[i] == kElem) {
        if (i >= inner) return false;  // an opaque row has no element axis to put outside
        continue;
      }
      const TestAxis axis = i < inner ? Inner(covered, element) : outer[roles.size() - 1 - i];
      if (axis.extent > 1 && axis.stride < covered) return false;
      SetAxis(view, roles[i], axis.stride, axis.extent);
      covered += (axis.extent - 1) * axis.stride;
      if (i + 1 == inner && room != 0 && covered > room) return false;
    }
    if (opaque) {
      view.opaque_row_bytes = row_bytes;
      view.row_elems = 0;
      view.elem_stride = 0;
    }
    return view.opaque() || view.elem_stride != 0 || view.row_elems == 1;
  }

 private:
  TestAxis Inner(uint64_t covered, uint64_t element) {
    const uint64_t gap = Below(3) == 0 ? element * Below(5) : 0;
    return {covered + gap, 1 + Below(4)};
  }

  std::mt19937 random_;
};

void Mark(const ViewLayout& v, uint64_t offset, std::vector<uint8_t>& bytes, uint8_t bit) {
  const uint32_t elems = v.opaque() ? 1 : v.row_elems;
  const uint64_t unit = v.opaque() ? v.opaque_row_bytes : ElementBytes(v.dtype);
  for (uint64_t b = 0; b < v.num_blocks; ++b) {
    for (uint64_t h = 0; h < v.heads; ++h) {
      for (uint64_t s = 0; s < v.block_slots; ++s) {
        for (uint64_t e = 0; e < elems; ++e) {
          const uint64_t at = offset + b * v.block_stride + h * v.head_stride + s * v.slot_stride +
                              (v.opaque() ? 0 : e * v.elem_stride);
          if (at + unit > bytes.size()) bytes.resize(at + unit);
          for (uint64_t i = at; i < at + unit; ++i) bytes[i] |= bit;
        }
      }
    }
  }
}

bool ShareAByte(uint64_t offset_a, const ViewLayout& a, uint64_t offset_b, const ViewLayout& b) {
  std::vector<uint8_t> bytes;
  Mark(a, offset_a, bytes, 1);
  Mark(b, offset_b, bytes, 2);
  return std::find(bytes.begin(), bytes.end(), 3) != bytes.end();
}

TEST(ViewsAlias, NeverMissesAndIsExactForEqualAxes) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  ViewMaker maker(kSeed);
  constexpr int kPairs = 60'000;
  int pairs = 0, equal = 0, cut_differently = 0, apart = 0, too_careful = 0;
  while (pairs < kPairs) {
    ViewLayout a, b;
    if (!maker.Make({}, 0, a)) continue;
    const std::vector<TestAxis> axes = AxesOf(a);
    // As many common outer axes as the dice say; all of them makes the lists equal.
    const size_t common = maker.Below(static_cast<uint32_t>(axes.size()) + 1);
    const std::vector<TestAxis> outer(axes.begin(),
                                      axes.begin() + static_cast<std::ptrdiff_t>(common));
    if (maker.Below(3) == 0) {
      b = a;
    } else if (!maker.Make(outer, outer.empty() ? 0 : outer.back().stride, b)) {
      continue;
    }
    ASSERT_TRUE(CheckNested(a).ok());
    ASSERT_TRUE(CheckNested(b).ok());
    const uint64_t reach = std::min<uint64_t>(ViewSpan(a).value() + 8, 4096);
    const uint64_t offset_a = maker.Below(64);
    const uint64_t offset_b = maker.Below(2) == 0 ? maker.Below(static_cast<uint32_t>(reach))
                                                  : offset_a + maker.Below(48);
    ++pairs;
    const bool said = ViewsAlias(offset_a, a, offset_b, b);
    const bool truth = ShareAByte(offset_a, a, offset_b, b);
    ASSERT_EQ(said, ViewsAlias(offset_b, b, offset_a, a)) << "not symmetric, pair " << pairs;
    ASSERT_TRUE(said || !truth) << "missed an overlap, pair " << pairs;
    if (AxesOf(a) == AxesOf(b)) {
      ++equal;
      ASSERT_EQ(said, truth) << "equal axes must be exact, pair " << pairs;
    } else if (common > 0) {
      ++cut_differently;
    }
    apart += truth ? 0 : 1;
    too_careful += said && !truth ? 1 : 0;
  }
  EXPECT_GT(equal, kPairs / 5);
  EXPECT_GT(cut_differently, kPairs / 6);
  EXPECT_GT(apart, kPairs / 10);
  EXPECT_LT(too_careful, kPairs / 10);
  RecordProperty("too_careful", too_careful);
}

ViewLayout Rows(uint32_t blocks, uint64_t block_stride, uint32_t heads, uint64_t head_stride,
                uint32_t slots, uint64_t slot_stride, uint32_t elems) {
  ViewLayout view;
  view.dtype = DType::kF16;
  SetAxis(view, kBlock, block_stride, blocks);
  SetAxis(view, kHead, head_stride, heads);
  SetAxis(view, kSlot, slot_stride, slots);
  SetAxis(view, kElem, 2, elems);
  return view;
}

// Kind: K and V share a row. https://github.com/LMCache/LMCache/issues/4160
// https://github.com/LMCache/LMCache/pull/4220
TEST(ViewsAlias, KeysBesideValuesInOneRow) {
  const ViewLayout half = Rows(4, 4096, 1, 0, 16, 256, 64);
  EXPECT_FALSE(ViewsAlias(0, half, 128, half));
  EXPECT_FALSE(ViewsAlias(128, half, 0, half));
  EXPECT_TRUE(ViewsAlias(0, half, 126, half));
  const ViewLayout whole = Rows(4, 4096, 1, 0, 16, 256, 128);
  EXPECT_TRUE(ViewsAlias(0, whole, 128, half));
}

// Kind: a layout guessed from its shape. https://github.com/LMCache/LMCache/pull/4607
// https://github.com/LMCache/LMCache/pull/2495
TEST(ViewsAlias, TellsRealLayoutsApart) {
  // [block, K or V, slot, head*d], 2 heads of 64 f16.
  const ViewLayout by_block = Rows(8, 2 * 16 * 256, 2, 128, 16, 256, 64);
  EXPECT_FALSE(ViewsAlias(0, by_block, 16 * 256, by_block));
  // [K or V, block, slot, head*d]
  const ViewLayout planes = Rows(8, 16 * 256, 2, 128, 16, 256, 64);
  EXPECT_FALSE(ViewsAlias(0, planes, 8 * 16 * 256, planes));
  EXPECT_TRUE(ViewsAlias(0, planes, 16 * 256, planes));
  // Transposed K beside plain V in one block.
  ViewLayout transposed = Rows(8, 2 * 16 * 256, 2, 64 * 32, 16, 2, 64);
  transposed.elem_stride = 32;
  ViewLayout plain = Rows(8, 2 * 16 * 256, 2, 16 * 128, 16, 128, 64);
  EXPECT_FALSE(ViewsAlias(0, transposed, 16 * 256, plain));
  EXPECT_TRUE(ViewsAlias(0, transposed, 16 * 256 - 2, plain));
}

TEST(ViewsAlias, FarOffsetsDoNotWrap) {
  const ViewLayout view = Rows(2, 64, 1, 0, 1, 0, 4);
  EXPECT_FALSE(ViewsAlias(0, view, ~uint64_t{0} - 71, view));
  EXPECT_FALSE(ViewsAlias(~uint64_t{0} - 71, view, 0, view));
  EXPECT_TRUE(ViewsAlias(~uint64_t{0} - 71, view, ~uint64_t{0} - 71, view));
}

}  // namespace
}  // namespace kvtriage
