// One layer of a dense tensor seen as a view of one block, so that kernels that read pages read it.
#ifndef KVTRIAGE_SERVICE_ENGINE_DENSE_VIEW_H_
#define KVTRIAGE_SERVICE_ENGINE_DENSE_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "service/engine/plan_tensor.h"

namespace kvtriage {

inline ViewLayout DenseLayout(const TensorSpec& tensor) {
  ViewLayout layout;
  layout.head_stride = tensor.head_stride;
  layout.slot_stride = tensor.row_stride;
  layout.elem_stride = tensor.elem_stride;
  layout.num_blocks = 1;
  layout.block_slots = tensor.rows;
  layout.heads = tensor.heads;
  layout.row_elems = tensor.elems;
  layout.dtype = tensor.dtype;
  return layout;
}

// Views are mutable because some are written to; whoever writes has asked for a writable region.
inline KvView DenseView(const ResolvedTensor& tensor, size_t layer) {
  return {const_cast<std::byte*>(tensor.base) + layer * tensor.spec.layer_stride,
          DenseLayout(tensor.spec)};
}

inline SequenceRows DenseRows(uint32_t rows) {
  static constexpr int32_t kOnlyBlock = 0;
  return {&kOnlyBlock, 0, rows};
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_DENSE_VIEW_H_
