#include "service/memory/cache_placement.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/reason_of.h"
#include "tests/unit/memory/lender.h"

namespace kvtriage {
namespace {

constexpr uint32_t kBlocks = 4;
constexpr uint64_t kViewBytes = kBlocks * kSmallBlockBytes;
constexpr uint64_t kPlaneBytes = 16 * kViewBytes;

// Regions 1 and 2 are two files; 3 is the same file as 1, lent again from its second page on.
class Placement : public testing::Test {
 protected:
  absl::Status Check(const CacheSpec& cache) {
    return CheckCachePlacement(cache, [this](uint64_t id) -> const LentRange* {
      const auto found = ranges_.find(id);
      return found == ranges_.end() ? nullptr : &found->second;
    });
  }
  static ViewSpec View(uint64_t region, uint64_t offset, uint32_t blocks = kBlocks) {
    return {region, offset, SmallLayout(blocks)};
  }
  std::map<uint64_t, LentRange> ranges_ = {{1, {{1, 100, 0}, kPlaneBytes}},
                                           {2, {{1, 200, 0}, kPlaneBytes}},
                                           {3, {{1, 100, kPage}, kPlaneBytes - kPage}},
                                           {4, {{2, 100, 0}, kPlaneBytes}}};
};

TEST_F(Placement, PlanesOfTwoFilesAndOfOneFile) {
  CacheSpec cache;
  cache.layers = {SmallLayer(0, View(1, 0), View(2, 0)),
                  SmallLayer(1, View(1, kViewBytes), View(2, kViewBytes))};
  EXPECT_TRUE(Check(cache).ok());
  cache.layers = {SmallLayer(0, View(1, 0), View(1, kViewBytes)),
                  SmallLayer(1, View(1, 2 * kViewBytes), View(1, 3 * kViewBytes))};
  EXPECT_TRUE(Check(cache).ok());
}

TEST_F(Placement, InterleavedByBlockIsNotOverlap) {
  ViewSpec k = View(1, 0), v = View(1, kSmallBlockBytes);
  k.layout.block_stride = v.layout.block_stride = 2 * kSmallBlockBytes;
  CacheSpec cache;
  cache.layers = {SmallLayer(0, k, v)};
  EXPECT_TRUE(Check(cache).ok()) << Check(cache);
  cache.layers[0].v.offset -= 4;
  EXPECT_EQ(ReasonOf(Check(cache)), "view_overlap");
}

TEST_F(Placement, OverlapInsideALayerNamesTheLaterView) {
  CacheSpec cache;
  cache.layers = {SmallLayer(0, View(1, 0), View(1, kViewBytes - 4))};
  const absl::Status status = Check(cache);
  EXPECT_EQ(ReasonOf(status), "view_overlap");
  EXPECT_EQ(FieldOf(status), "spec.layers[0].v");
}

TEST_F(Placement, OverlapAcrossLayersNamesBoth) {
  CacheSpec cache;
  cache.layers = {SmallLayer(0, View(1, 0), View(1, kViewBytes)),
                  SmallLayer(1, View(1, 2 * kViewBytes), View(1, 4))};
  const absl::Status status = Check(cache);
  EXPECT_EQ(ReasonOf(status), "view_overlap");
  EXPECT_EQ(FieldOf(status), "spec.layers[1].v");
  EXPECT_EQ(GetErrorInfo(status)->index, 0u);
}

TEST_F(Placement, CompanionsCount) {
  CacheSpec cache;
  LayerSpec layer = SmallLayer(0, View(1, 0), View(1, kViewBytes));
  ViewSpec companion = View(2, 0);
  companion.layout.opaque_row_bytes = 16;
  companion.layout.row_elems = 0;
  companion.layout.elem_stride = 0;
  layer.companions = {companion};
  cache.layers = {layer};
  EXPECT_TRUE(Check(cache).ok());
  cache.layers[0].companions.push_back(companion);
  EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[0].companions[1]");
  cache.layers[0].companions = {companion};
  cache.layers[0].companions[0].region_id = 1;
  EXPECT_EQ(ReasonOf(Check(cache)), "view_overlap");
}

TEST_F(Placement, RowScalesCount) {
  CacheSpec cache;
  LayerSpec layer = SmallLayer(0, View(1, 0), View(1, kViewBytes));
  ViewSpec scales = View(2, 0);
  scales.layout.opaque_row_bytes = 4;
  scales.layout.row_elems = 0;
  scales.layout.elem_stride = 0;
  layer.v_scales = scales;
  cache.layers = {layer};
  EXPECT_TRUE(Check(cache).ok());
  cache.layers[0].k_scales = scales;
  EXPECT_EQ(ReasonOf(Check(cache)), "view_overlap");
  EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[0].v.scale.per_row");
  cache.layers[0].k_scales->offset = kPlaneBytes - 4;
  EXPECT_EQ(ReasonOf(Check(cache)), "range_out_of_region");
  EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[0].k.scale.per_row");
  cache.layers[0].k_scales->region_id = 9;
  EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[0].k.scale.per_row.region_id");
}

// K and V may share bytes only where the layer says that V is a part of K's rows.
TEST_F(Placement, LatentRowsAreOneView) {
  CacheSpec cache;
  LayerSpec layer = SmallLayer(0, View(1, 0), View(1, 0));
  layer.v.layout.row_elems -= 1;
  cache.layers = {layer};
  EXPECT_EQ(ReasonOf(Check(cache)), "view_overlap");
  cache.layers[0].v_in_k = true;
  EXPECT_TRUE(Check(cache).ok());
}

TEST_F(Placement, TheSameMemoryLentTwiceIsSeen) {
  CacheSpec cache;
  // Byte kPage of region 1 is byte 0 of region 3.
  cache.layers = {SmallLayer(0, View(1, kPage), View(3, 0))};
  EXPECT_EQ(ReasonOf(Check(cache)), "view_overlap");
  cache.layers = {SmallLayer(0, View(1, kPage), View(3, kViewBytes))};
  EXPECT_TRUE(Check(cache).ok());
  // The same inode number on another device is another file.
  cache.layers = {SmallLayer(0, View(1, 0), View(4, 0))};
  EXPECT_TRUE(Check(cache).ok());
}

TEST_F(Placement, UnknownRegionsAreNamed) {
  CacheSpec cache;
  cache.layers = {SmallLayer(0, View(1, 0), View(2, 0)),
                  SmallLayer(1, View(1, kViewBytes), View(9, 0))};
  EXPECT_EQ(ReasonOf(Check(cache)), "memory_unknown");
  EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[1].v.region_id");
}

// Sources: https://github.com/triton-inference-server/server/pull/8170 ,
// https://github.com/triton-inference-server/server/pull/8335
TEST_F(Placement, SizeArithmeticThatWouldWrapIsOutOfRange) {
  CacheSpec cache;
  cache.layers = {SmallLayer(0, View(1, kPlaneBytes - kViewBytes), View(2, 0))};
  EXPECT_TRUE(Check(cache).ok()) << "the exact end is inside";
  for (const uint64_t offset : {kPlaneBytes - kViewBytes + 4, kPlaneBytes, ~uint64_t{0} - 0x3F,
                                ~uint64_t{0} - kViewBytes + 1}) {
    SCOPED_TRACE(offset);
    cache.layers[0].k.offset = offset;
    EXPECT_EQ(ReasonOf(Check(cache)), "range_out_of_region");
    EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[0].k");
  }
  // The file offset of a region is counted once.
  const uint64_t lent_again = kPlaneBytes - kPage;
  cache.layers = {SmallLayer(0, View(3, lent_again - kViewBytes), View(2, 0))};
  EXPECT_TRUE(Check(cache).ok());
  cache.layers[0].k.offset += 1;
  EXPECT_EQ(ReasonOf(Check(cache)), "range_out_of_region");
}

TEST_F(Placement, ProductsThatWrapAreRefused) {
  CacheSpec cache;
  cache.layers = {SmallLayer(0, View(1, 0), View(2, 0))};
  cache.layers[0].k.layout.block_stride = uint64_t{1} << 62;
  EXPECT_EQ(ReasonOf(Check(cache)), "geometry_overflow");
  EXPECT_EQ(FieldOf(Check(cache)), "spec.layers[0].k");
}

TEST_F(Placement, AWorstCaseCacheIsCheckedInBoundedTime) {
  // 256 layers of six views, all cut from the same rows: every bounding range meets every other.
  constexpr uint32_t kLayers = 256, kViews = 6;
  const uint64_t row = kLayers * kViews * 32;
  ranges_[1].bytes = uint64_t{64} * row;
  CacheSpec cache;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const auto view = [&](uint32_t index) {
      ViewSpec spec = View(1, (uint64_t{layer} * kViews + index) * 32, 4);
      spec.layout.slot_stride = row;
      spec.layout.head_stride = 4 * row;
      spec.layout.block_stride = 8 * row;
      return spec;
    };
    LayerSpec spec = SmallLayer(layer, view(0), view(1));
    for (uint32_t i = 2; i < kViews; ++i) spec.companions.push_back(view(i));
    cache.layers.push_back(spec);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Check(cache).ok()) << Check(cache);
  const std::chrono::duration<double> took = (std::chrono::steady_clock::now() - start) / 2;
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_LT(took.count(), 5.0) << "the mapper's watchdog would call it stuck";
}

}  // namespace
}  // namespace kvtriage
