#include "client/cpp/cache_to_proto.h"

#include <unistd.h>

#include <bit>

namespace kvtriage::client {
namespace {

v1::DType ToProto(DType dtype) { return static_cast<v1::DType>(dtype); }
static_assert(static_cast<int>(DType::kF32) == v1::DTYPE_F32);
static_assert(static_cast<int>(DType::kF16) == v1::DTYPE_F16);
static_assert(static_cast<int>(DType::kBF16) == v1::DTYPE_BF16);
static_assert(static_cast<int>(DType::kF8E4M3) == v1::DTYPE_FP8_E4M3);
static_assert(static_cast<int>(DType::kF8E5M2) == v1::DTYPE_FP8_E5M2);
static_assert(static_cast<int>(RopePairing::kHalf) == v1::ROPE_PAIRING_HALF);
static_assert(static_cast<int>(OtherScaling::Kind::kUnknown) == v1::RopeSpec::UNKNOWN);
static_assert(static_cast<int>(RopePairing::kInterleaved) == v1::ROPE_PAIRING_INTERLEAVED);
static_assert(static_cast<int>(LayerKind::kFull) == v1::LAYER_KIND_FULL);
static_assert(static_cast<int>(LayerKind::kMla) == v1::LAYER_KIND_MLA);
static_assert(static_cast<int>(LayerKind::kSliding) == v1::LAYER_KIND_SLIDING);
static_assert(static_cast<int>(LayerKind::kAlibi) == v1::LAYER_KIND_ALIBI);
static_assert(static_cast<int>(Access::kRead) == v1::ACCESS_READ);
static_assert(static_cast<int>(Access::kReadWrite) == v1::ACCESS_READ_WRITE);

void SetScale(const ViewSpec& view, const MemoryIds& ids, v1::View& out) {
  if (view.row_scales) {
    v1::ScaleView& rows = *out.mutable_scale()->mutable_per_row();
    rows.set_region_id(ids.IdOf(view.row_scales->region));
    rows.set_offset(view.row_scales->offset);
    rows.set_block_stride(view.row_scales->block_stride);
    rows.set_head_stride(view.row_scales->head_stride);
    rows.set_slot_stride(view.row_scales->slot_stride);
  } else if (view.scale != 1.0f) {
    out.mutable_scale()->set_constant(view.scale);
  }
}

void SetValues(const LayerSpec& layer, const MemoryIds& ids, v1::LayerSpec& out) {
  if (!layer.v_in_k) {
    *out.mutable_v() = ToProto(layer.v, ids);
    out.set_v_elems(layer.v.row_elems);
    return;
  }
  out.set_v_in_k_first_elem(layer.v_in_k->first);
  out.set_v_elems(layer.v_in_k->elems);
}

v1::RopeSpec::ThetaSpeeds ToProto(const ThetaSpeeds& speeds) {
  v1::RopeSpec::ThetaSpeeds out;
  out.set_theta(speeds.theta);
  if (const auto* const linear = std::get_if<LinearScaling>(&speeds.scaling)) {
    out.mutable_linear()->set_factor(linear->factor);
  } else if (const auto* const llama3 = std::get_if<Llama3Scaling>(&speeds.scaling)) {
    out.mutable_llama3()->set_factor(llama3->factor);
    out.mutable_llama3()->set_low(llama3->low);
    out.mutable_llama3()->set_high(llama3->high);
    out.mutable_llama3()->set_original_length(llama3->original_length);
  } else if (const auto* const yarn = std::get_if<YarnScaling>(&speeds.scaling)) {
    out.mutable_yarn()->set_factor(yarn->factor);
    out.mutable_yarn()->set_beta_fast(yarn->beta_fast);
    out.mutable_yarn()->set_beta_slow(yarn->beta_slow);
    out.mutable_yarn()->set_original_length(yarn->original_length);
  } else if (const auto* const other = std::get_if<OtherScaling>(&speeds.scaling)) {
    out.set_other(static_cast<v1::RopeSpec::OtherScaling>(other->kind));
  }
  return out;
}

v1::RopeSpec ToProto(const RopeSpec& rope) {
  v1::RopeSpec out;
  out.set_pairing(static_cast<v1::RopePairing>(rope.pairing));
  out.set_rotary_dim(rope.rotary_dim);
  out.set_rotary_offset(rope.rotary_offset);
  if (const auto* const theta = std::get_if<ThetaSpeeds>(&rope.speeds)) {
    *out.mutable_theta() = ToProto(*theta);
  } else {
    static_assert(std::endian::native == std::endian::little);
    const auto& list = std::get<std::vector<double>>(rope.speeds);
    out.set_speeds_f64le(list.data(), list.size() * sizeof(double));
  }
  out.set_attention_factor(rope.attention_factor);
  for (const uint32_t section : rope.mrope_sections) out.add_mrope_sections(section);
  return out;
}

void SetSource(const RegionSpec& region, uint64_t ticket, v1::RegionSpec& out) {
  if (!region.cuda.has_value()) {
    out.mutable_host()->set_ticket(ticket);
    out.mutable_host()->set_offset(region.offset);
    return;
  }
  v1::RegionSpec::CudaIpc& cuda = *out.mutable_cuda_ipc();
  cuda.set_handle(region.cuda->handle.data(), region.cuda->handle.size());
  cuda.set_device_uuid(region.cuda->device_uuid);
  cuda.set_base_offset(region.offset);
  cuda.set_allocation_bytes(region.cuda->bytes);
  cuda.set_exporter_pid(static_cast<uint32_t>(getpid()));
  cuda.set_generation(region.cuda->generation);
}

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
  SetScale(view, ids, out);
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
  for (const RopeSpec& rope : cache.ropes) *out.add_ropes() = ToProto(rope);
  for (const LayerSpec& layer : cache.layers) {
    v1::LayerSpec* const to = out.add_layers();
    to->set_layer_index(layer.layer_index);
    to->set_kind(static_cast<v1::LayerKind>(layer.kind));
    to->set_position_aware(layer.position_aware);
    to->set_sliding_window(layer.sliding_window);
    to->set_q_heads(layer.q_heads);
    to->set_kv_heads(layer.kv_heads);
    *to->mutable_k() = ToProto(layer.k, ids);
    SetValues(layer, ids, *to);
    for (const ViewSpec& companion : layer.companions)
      *to->add_companions() = ToProto(companion, ids);
    to->set_rope_index(layer.rope_index);
  }
  return out;
}

v1::RegionSpec ToProto(const RegionSpec& region, uint64_t ticket, bool with_fingerprint) {
  v1::RegionSpec out;
  SetSource(region, ticket, out);
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
