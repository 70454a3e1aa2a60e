#include "kvtriage/cache_description.h"

namespace kvtriage::client {

uint32_t BytesOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
      return 2;
    case DType::kBF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    case DType::kUnspecified:
      return 0;
  }
  return 0;
}

ViewSpec ContiguousView(Region region, uint64_t offset, uint32_t heads, uint32_t capacity,
                        uint32_t elems, DType dtype) {
  ViewSpec view;
  view.region = region;
  view.offset = offset;
  view.elem_stride = BytesOf(dtype);
  view.slot_stride = view.elem_stride * elems;
  view.head_stride = view.slot_stride * capacity;
  view.num_blocks = 1;
  view.block_slots = capacity;
  view.heads = heads;
  view.row_elems = elems;
  view.dtype = dtype;
  return view;
}

TensorSpec DenseTensor(Region region, uint64_t offset, DType dtype, uint32_t layers, uint32_t rows,
                       uint32_t heads, uint32_t elems) {
  TensorSpec tensor;
  tensor.region = region;
  tensor.offset = offset;
  tensor.dtype = dtype;
  tensor.layers = layers;
  tensor.rows = rows;
  tensor.heads = heads;
  tensor.elems = elems;
  tensor.elem_stride = BytesOf(dtype);
  tensor.head_stride = tensor.elem_stride * elems;
  tensor.row_stride = tensor.head_stride * heads;
  tensor.layer_stride = tensor.row_stride * rows;
  return tensor;
}

}  // namespace kvtriage::client
