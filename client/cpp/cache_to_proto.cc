#include "client/cpp/cache_to_proto.h"

namespace kvtriage::client {
namespace {

v1::DType ToProto(DType dtype) { return static_cast<v1::DType>(dtype); }
static_assert(static_cast<int>(DType::kF32) == v1::DTYPE_F32);
static_assert(static_cast<int>(DType::kF16) == v1::DTYPE_F16);
static_assert(static_cast<int>(DType::kBF16) == v1::DTYPE_BF16);
static_assert(static_cast<int>(Access::kRead) == v1::ACCESS_READ);
static_assert(static_cast<int>(Access::kReadWrite) == v1::ACCESS_READ_WRITE);

}  // namespace

v1::View ToProto(const ViewSpec& view, const MemoryIds& ids) {
  v1::View out;
  out.set_region_id(ids.IdOf(view.region));
  out.set_offset(view.offset);
  out.set_block_stride(view.block_stride);
  out.set_head_stride(view.head_stride);
  out.set_slot_stride(view.slot_stride);
  out.set_elem_stride(view.elem_stride);
  out.set_num_blocks(view.num_blocks);
  out.set_block_slots(view.block_slots);
  out.set_heads(view.heads);
  out.set_row_elems(view.row_elems);
  if (view.opaque_row_bytes > 0) {
    out.set_opaque_row_bytes(view.opaque_row_bytes);
  } else {
    out.set_dtype(ToProto(view.dtype));
  }
  return out;
}

v1::Tensor ToProto(const TensorSpec& tensor, const MemoryIds& ids) {
  v1::Tensor out;
  out.set_region_id(ids.IdOf(tensor.region));
  out.set_offset(tensor.offset);
  out.set_dtype(ToProto(tensor.dtype));
  out.set_layers(tensor.layers);
  out.set_rows(tensor.rows);
  out.set_heads(tensor.heads);
  out.set_elems(tensor.elems);
  out.set_layer_stride(tensor.layer_stride);
  out.set_row_stride(tensor.row_stride);
  out.set_head_stride(tensor.head_stride);
  out.set_elem_stride(tensor.elem_stride);
  return out;
}

v1::CacheSpec ToProto(const CacheSpec& cache, const MemoryIds& ids) {
  v1::CacheSpec out;
  out.set_num_layers(cache.num_layers);
  for (const LayerSpec& layer : cache.layers) {
    v1::LayerSpec* const to = out.add_layers();
    to->set_layer_index(layer.layer_index);
    to->set_kind(v1::LAYER_KIND_FULL);
    to->set_q_heads(layer.q_heads);
    to->set_kv_heads(layer.kv_heads);
    *to->mutable_k() = ToProto(layer.k, ids);
    *to->mutable_v() = ToProto(layer.v, ids);
    to->set_v_elems(layer.v.row_elems);
    for (const ViewSpec& companion : layer.companions)
      *to->add_companions() = ToProto(companion, ids);
  }
  return out;
}

v1::RegionSpec ToProto(const RegionSpec& region, uint64_t ticket, bool with_fingerprint) {
  v1::RegionSpec out;
  out.mutable_host()->set_ticket(ticket);
  out.mutable_host()->set_offset(region.offset);
  out.set_size(region.size);
  out.set_access(static_cast<v1::Access>(region.access));
  out.set_tag(region.tag);
  if (with_fingerprint && region.fingerprint.has_value()) {
    out.mutable_fingerprint()->set_offset(region.fingerprint->offset);
    out.mutable_fingerprint()->set_expected(region.fingerprint->expected.data(),
                                            region.fingerprint->expected.size());
  }
  return out;
}

}  // namespace kvtriage::client
