#include "kernels/cpu/projected_norms.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/projected_norms.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// Rows of W_O that are unpacked at a time: they stay in the second-level cache while all panels
// pass.
constexpr size_t kChunkRows = 128;

// Rows [begin, begin + count) of one head of the projection, packed as row_blocks.h says.
void PackProjection(const TensorView& projection, uint32_t head, uint64_t begin, size_t count,
                    ProjectScratch& scratch) {
  const size_t elems = projection.elems;
  float* const rows = scratch.rows.Reserve(kChunkRows * elems);
  for (size_t r = 0; r < count; ++r) {
    WidenStrided(projection.At(begin + r, head, 0), projection.elem_stride, projection.dtype, elems,
                 rows + r * elems);
  }
  PackRowBlocks(rows, count, elems, elems, kTileRows, scratch.blocks.Reserve(kChunkRows * elems));
}

// sums[kPanel] += |product| over the rows of the packed chunk, compensated: W_O may have thousands.
HWY_INLINE void AddMagnitudes(const ProjectScratch& scratch, const float* panel, size_t rows,
                              size_t elems, float* tile, float* sums, float* lost) {
  const D d;
  for (size_t first = 0; first < rows;) {
    const size_t count = RowsOfBlock(first, rows, kTileRows);
    MultiplyPanel(scratch.blocks.data() + first * elems, count, panel, elems, tile);
    for (size_t v = 0; v < kPanel; v += kLanes) {
      V block = hn::Zero(d);
      for (size_t r = 0; r < count; ++r) {
        block = hn::Add(block, hn::Abs(hn::Load(d, tile + r * kPanel + v)));
      }
      V sum = hn::Load(d, sums + v), low = hn::Load(d, lost + v);
      AddCompensated(block, sum, low);
      hn::Store(sum, d, sums + v);
      hn::Store(low, d, lost + v);
    }
    first += count;
  }
}

void ProjectedNormsImpl(const LayerRows& layer, const TensorView& projection, uint32_t kv_head,
                        uint64_t begin, uint64_t end, ProjectScratch& scratch, float* norms) {
  const size_t elems = layer.v.layout.row_elems;
  const size_t panels = (end - begin + kPanel - 1) / kPanel, pitch = PanelFloats(elems);
  float* const values = scratch.values.Reserve(panels * pitch);
  float* const pack = scratch.pack.Reserve(PackScratchFloats(elems));
  float* const tile = scratch.tile.Reserve(kTileRows * kPanel);
  float* const sums = scratch.sums.Reserve(2 * panels * kPanel);  // of each panel: sums, lost
  std::fill_n(sums, 2 * panels * kPanel, 0.0f);
  HWY_ALIGN float bad[kPanel];
  for (size_t i = 0; i < panels; ++i) {
    const uint64_t p = begin + i * kPanel;
    const size_t count = std::min<uint64_t>(kPanel, end - p);
    PackPanel<Norm::kNone>({layer.v, layer.sequence, kv_head, p, count}, pack, values + i * pitch,
                           bad, bad);
  }
  const uint32_t group = layer.q_heads / layer.k.layout.heads;
  for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    for (uint64_t row = 0; row < projection.rows; row += kChunkRows) {
      const size_t rows = std::min<uint64_t>(kChunkRows, projection.rows - row);
      PackProjection(projection, h, row, rows, scratch);
      for (size_t i = 0; i < panels; ++i) {
        float* const mine = sums + i * 2 * kPanel;
        AddMagnitudes(scratch, values + i * pitch, rows, elems, tile, mine, mine + kPanel);
      }
    }
  }
  for (uint64_t t = 0; t < end - begin; ++t) {
    norms[t] = sums[t / kPanel * 2 * kPanel + t % kPanel] / static_cast<float>(group);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(ProjectedNormsImpl);

void ProjectedNorms(const LayerRows& layer, const TensorView& projection, uint32_t kv_head,
                    uint64_t begin, uint64_t end, ProjectScratch& scratch, float* norms) {
  HWY_DYNAMIC_DISPATCH(ProjectedNormsImpl)
  (layer, projection, kv_head, begin, end, scratch, norms);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
