#include "client/cli/dump_tensor_spec.h"

namespace kvtriage::cli {

client::DType ClientType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return client::DType::kF32;
    case DType::kF16:
      return client::DType::kF16;
    case DType::kBF16:
      return client::DType::kBF16;
    case DType::kF8E4M3:
      return client::DType::kF8E4M3;
    case DType::kF8E5M2:
      return client::DType::kF8E5M2;
  }
  return client::DType::kUnspecified;
}

client::TensorSpec InputSpec(client::Region region, uint64_t offset, const DumpTensor& tensor,
                             size_t layers) {
  const TensorView view = QueryView(nullptr, tensor);
  client::TensorSpec spec;
  spec.region = region;
  spec.offset = offset;
  spec.dtype = ClientType(tensor.dtype);
  spec.layers = static_cast<uint32_t>(layers);
  spec.rows = view.rows;
  spec.heads = view.heads;
  spec.elems = view.elems;
  spec.layer_stride = tensor.entry.bytes;
  spec.row_stride = view.row_stride;
  spec.head_stride = view.head_stride;
  spec.elem_stride = view.elem_stride;
  return spec;
}

TensorView QueryView(const std::byte* base, const DumpTensor& tensor) {
  const uint64_t element = ElementBytes(tensor.dtype);
  TensorView view;
  view.base = base;
  view.dtype = tensor.dtype;
  view.rows = static_cast<uint32_t>(tensor.rows());
  view.heads = static_cast<uint32_t>(tensor.heads());
  view.elems = static_cast<uint32_t>(tensor.elems());
  view.row_stride = tensor.elems() * element;
  view.head_stride = tensor.rows() * view.row_stride;
  view.elem_stride = element;
  return view;
}

KvView CacheView(std::byte* base, const DumpTensor& tensor) {
  const uint64_t element = ElementBytes(tensor.dtype);
  ViewLayout layout;
  layout.slot_stride = tensor.elems() * element;
  layout.head_stride = tensor.rows() * layout.slot_stride;
  layout.elem_stride = element;
  layout.num_blocks = 1;
  layout.block_slots = static_cast<uint32_t>(tensor.rows());
  layout.heads = static_cast<uint32_t>(tensor.heads());
  layout.row_elems = static_cast<uint32_t>(tensor.elems());
  layout.dtype = tensor.dtype;
  return {base, layout};
}

}  // namespace kvtriage::cli
