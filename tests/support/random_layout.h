// Random view geometries for property tests: axes nested in any order, with gaps, rows of known or
// unknown encoding.
#ifndef KVTRIAGE_TESTS_SUPPORT_RANDOM_LAYOUT_H_
#define KVTRIAGE_TESTS_SUPPORT_RANDOM_LAYOUT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kvtriage/kernels/views.h"

namespace kvtriage {

// Extents of a layout still without strides.
struct LayoutShape {
  uint32_t num_blocks = 1, block_slots = 1, heads = 1;
  uint32_t row_elems = 0;         // 0: opaque
  uint32_t opaque_row_bytes = 0;  // used when row_elems is 0
  DType dtype = DType::kF32;
};

// Strides of nested axes, from the innermost of `order` out; axes are 0 block, 1 head, 2 slot and 3
// element. Every axis leaves `gap()` bytes free.
template <class Gap>
ViewLayout NestAxes(const LayoutShape& shape, std::span<const int> order, Gap gap) {
  ViewLayout layout;
  layout.num_blocks = shape.num_blocks;
  layout.block_slots = shape.block_slots;
  layout.heads = shape.heads;
  layout.row_elems = shape.row_elems;
  layout.opaque_row_bytes = shape.row_elems == 0 ? shape.opaque_row_bytes : 0;
  layout.dtype = shape.dtype;
  const std::array<uint64_t, 4> extent = {shape.num_blocks, shape.heads, shape.block_slots,
                                          shape.row_elems};
  const std::array<uint64_t*, 4> stride = {&layout.block_stride, &layout.head_stride,
                                           &layout.slot_stride, &layout.elem_stride};
  uint64_t size = layout.opaque() ? layout.opaque_row_bytes : ElementBytes(shape.dtype);
  bool innermost = true;
  for (const int axis : order) {
    if (axis == 3 && layout.opaque()) continue;
    // Neighbours where they are the innermost axis, as engines have it.
    *stride[static_cast<size_t>(axis)] = size + (innermost ? 0 : gap());
    size = *stride[static_cast<size_t>(axis)] * extent[static_cast<size_t>(axis)];
    innermost = false;
  }
  return layout;
}

// Axes in a random order and random gaps (0 to 3 elements, or up to 130 bytes for opaque rows).
inline ViewLayout RandomLayout(const LayoutShape& shape, std::mt19937& random) {
  std::array<int, 4> order = {3, 2, 1, 0};
  std::shuffle(order.begin(), order.end(), random);
  const uint64_t unit = shape.row_elems == 0 ? 1 : ElementBytes(shape.dtype);
  const uint64_t most = shape.row_elems == 0 ? 130 : 3;
  return NestAxes(shape, order,
                  [&] { return random() % 2 == 0 ? 0 : random() % (most + 1) * unit; });
}

// One past the last byte of a layout.
inline uint64_t LayoutBytes(const ViewLayout& layout) {
  const uint64_t row =
      layout.opaque() ? layout.opaque_row_bytes
                      : (layout.row_elems - 1) * layout.elem_stride + ElementBytes(layout.dtype);
  return (layout.num_blocks - 1) * layout.block_stride + (layout.heads - 1) * layout.head_stride +
         (layout.block_slots - 1) * layout.slot_stride + row;
}

// `used` different ids below `blocks`, in random order.
inline std::vector<int32_t> RandomTable(uint32_t used, uint32_t blocks, std::mt19937& random) {
  std::vector<int32_t> ids(blocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(used);
  return ids;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_RANDOM_LAYOUT_H_
