#include "tests/unit/validate/valid_messages.h"

#include <cstring>

namespace kvtriage {
namespace {

constexpr uint64_t kRegionId = (uint64_t{1} << 32) + 7;
constexpr uint64_t kCacheId = (uint64_t{1} << 32) + 9;

void SetKey(v1::RequestHeader& header) { header.set_idempotency_key("0123456789abcdef"); }

v1::SequenceSpec Sequence(uint64_t id, uint64_t rows, uint32_t begin, uint32_t count) {
  v1::SequenceSpec sequence;
  sequence.set_sequence_id(id);
  sequence.set_generation(1);
  sequence.set_logical_len(rows + 5);
  sequence.set_physical_len(rows);
  sequence.set_total_dropped(5);
  sequence.mutable_table()->set_inline_le(Int32Bytes({5, 2, -1, -1}));
  sequence.set_sharing(v1::SHARING_ALL_PRIVATE);
  sequence.mutable_positions()->set_first_position(5);
  sequence.set_rows_begin(begin);
  sequence.set_rows_count(count);
  return sequence;
}

v1::View PlaneView(uint64_t offset) {
  v1::View view;
  view.set_region_id(1);
  view.set_offset(offset);
  view.set_num_blocks(8);
  view.set_block_slots(16);
  view.set_heads(2);
  view.set_row_elems(64);
  view.set_dtype(v1::DTYPE_F16);
  view.set_elem_stride(2);
  view.set_head_stride(128);
  view.set_slot_stride(256);
  view.set_block_stride(4096);
  return view;
}

v1::View CompanionView(uint64_t offset) {
  v1::View view = PlaneView(offset);
  view.set_opaque_row_bytes(4);
  view.set_row_elems(0);
  view.set_elem_stride(0);
  view.set_head_stride(4);
  view.set_slot_stride(8);
  view.set_block_stride(128);
  return view;
}

void FillInputs(v1::ScoreInputs::SourceCase source, v1::ScoreInputs& inputs) {
  switch (source) {
    case v1::ScoreInputs::kKeysOnly:
      inputs.mutable_keys_only();
      break;
    case v1::ScoreInputs::kQuery:
      *inputs.mutable_query()->mutable_q() = PackedTensor(2, 7, 8, 64);
      inputs.mutable_query()->set_stage(v1::QUERY_STAGE_AFTER_ROPE);
      inputs.set_logit_softcap(50);
      *inputs.mutable_sink_logits() = PackedTensor(2, 1, 8, 1);
      break;
    case v1::ScoreInputs::kQueryOutput:
      *inputs.mutable_query_output()->mutable_q() = PackedTensor(2, 7, 8, 64);
      *inputs.mutable_query_output()->mutable_o() = PackedTensor(2, 7, 8, 64);
      *inputs.mutable_query_output()->mutable_lse() = PackedTensor(2, 7, 8, 1);
      inputs.mutable_query_output()->set_stage(v1::QUERY_STAGE_AFTER_ROPE);
      inputs.mutable_query_output()->set_lse_base(v1::LSE_BASE_E);
      break;
    case v1::ScoreInputs::kAttention:
      *inputs.mutable_attention()->mutable_a() = PackedTensor(2, 7, 8, 20);
      *inputs.mutable_attention()->mutable_z() = PackedTensor(2, 7, 8, 20);
      *inputs.mutable_attention()->mutable_o() = PackedTensor(2, 7, 8, 64);
      break;
    case v1::ScoreInputs::kColumnSums:
      *inputs.mutable_column_sums()->mutable_sums() = PackedTensor(2, 2, 8, 20);
      inputs.mutable_column_sums()->set_heads(v1::HEAD_AXIS_QUERY);
      break;
    case v1::ScoreInputs::SOURCE_NOT_SET:
      break;
  }
  inputs.set_softmax_scale(0.125);
}

}  // namespace

std::string Int32Bytes(const std::vector<int32_t>& values) {
  std::string bytes(values.size() * sizeof(int32_t), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

v1::Tensor PackedTensor(uint32_t layers, uint32_t rows, uint32_t heads, uint32_t elems) {
  v1::Tensor tensor;
  tensor.set_region_id(kRegionId);
  tensor.set_dtype(v1::DTYPE_F32);
  tensor.set_layers(layers);
  tensor.set_rows(rows);
  tensor.set_heads(heads);
  tensor.set_elems(elems);
  tensor.set_elem_stride(4);
  tensor.set_head_stride(uint64_t{4} * elems);
  tensor.set_row_stride(uint64_t{4} * elems * heads);
  tensor.set_layer_stride(uint64_t{4} * elems * heads * rows);
  return tensor;
}

v1::CompressRequest ValidCompressFrom(v1::ScoreInputs::SourceCase source) {
  v1::CompressRequest request;
  SetKey(*request.mutable_header());
  request.set_cache_id(kCacheId);
  request.set_layers_le(Int32Bytes({0, 1}));
  const bool sums = source == v1::ScoreInputs::kColumnSums;
  const bool none = source == v1::ScoreInputs::kKeysOnly;
  *request.add_sequences() = Sequence(11, 20, 0, none ? 0 : sums ? 1 : 4);
  *request.add_sequences() = Sequence(12, 3, none ? 0 : sums ? 1 : 4, none ? 0 : sums ? 1 : 3);
  request.mutable_policy()->set_name(none ? "streaming" : "snapkv");
  request.mutable_policy()->mutable_parts()->mutable_budget()->set_kept_ratio(0.5);
  FillInputs(source, *request.mutable_inputs());
  request.mutable_act()->mutable_in_place()->set_ledger_slot(0);
  request.mutable_output()->set_format(v1::KEPT_FORMAT_INDICES);
  request.mutable_output()->set_lengths(v1::LENGTH_RULE_ANY);
  request.mutable_measure()->set_retained_mass(true);
  return request;
}

v1::CompressRequest ValidCompress() { return ValidCompressFrom(v1::ScoreInputs::kQuery); }

v1::RegisterRegionsRequest ValidRegister() {
  v1::RegisterRegionsRequest request;
  SetKey(*request.mutable_header());
  v1::RegionSpec& region = *request.add_regions();
  region.mutable_host()->set_ticket(3);
  region.mutable_host()->set_offset(4096);
  region.set_size(1 << 20);
  region.set_access(v1::ACCESS_READ_WRITE);
  region.set_tag(1);
  region.mutable_fingerprint()->set_offset(64);
  region.mutable_fingerprint()->set_expected("kvtriage");
  v1::CacheRegistration& cache = *request.add_caches();
  cache.set_tag(2);
  cache.mutable_spec()->set_num_layers(4);
  for (uint32_t i = 0; i < 2; ++i) {
    v1::LayerSpec& layer = *cache.mutable_spec()->add_layers();
    layer.set_layer_index(i + 1);
    layer.set_kind(v1::LAYER_KIND_FULL);
    layer.set_q_heads(8);
    layer.set_kv_heads(2);
    *layer.mutable_k() = PlaneView(i * 131072);
    *layer.mutable_v() = PlaneView(i * 131072 + 32768);
    layer.set_v_elems(64);
    *layer.add_companions() = CompanionView(i * 131072 + 65536);
  }
  // Rows of 64 channels, 32 of them rotated from channel 16 on.
  v1::RopeSpec& rope = *cache.mutable_spec()->add_ropes();
  rope.set_pairing(v1::ROPE_PAIRING_INTERLEAVED);
  rope.set_rotary_dim(32);
  rope.set_rotary_offset(16);
  rope.mutable_theta()->set_theta(1e4);
  cache.mutable_spec()->mutable_layers(1)->set_rope_index(1);
  return request;
}

v1::RegisterRegionsRequest ValidCudaRegister() {
  v1::RegisterRegionsRequest request = ValidRegister();
  v1::RegionSpec::CudaIpc& cuda = *request.mutable_regions(0)->mutable_cuda_ipc();
  cuda.set_handle(std::string(64, 'h'));
  cuda.set_device_uuid("GPU-6b767472-6961-6765-2d66-616b652d6400");
  cuda.set_base_offset(512);
  cuda.set_allocation_bytes(2 << 20);
  cuda.set_exporter_pid(7);
  cuda.set_generation(9);
  return request;
}

v1::RegisterRegionsRequest ValidLatentRegister() {
  v1::RegisterRegionsRequest request = ValidRegister();
  for (v1::LayerSpec& layer : *request.mutable_caches(0)->mutable_spec()->mutable_layers()) {
    layer.set_kind(v1::LAYER_KIND_MLA);
    layer.set_kv_heads(1);
    layer.clear_companions();
    layer.set_v_in_k_first_elem(64);
    layer.set_v_elems(512);
    v1::View& k = *layer.mutable_k();
    k.set_heads(1);
    k.set_row_elems(576);
    k.set_dtype(v1::DTYPE_FP8_E4M3);
    k.set_elem_stride(1);
    k.set_head_stride(576);
    k.set_slot_stride(576);
    k.set_block_stride(9216);
    v1::ScaleView& scales = *k.mutable_scale()->mutable_per_row();
    scales.set_region_id(1);
    scales.set_offset(k.offset() + 98304);
    scales.set_slot_stride(4);
    scales.set_block_stride(64);
  }
  return request;
}

v1::SelectRecomputeRequest ValidSelectRecompute() {
  v1::SelectRecomputeRequest request;
  SetKey(*request.mutable_header());
  *request.mutable_fresh()->mutable_tensor() = PackedTensor(1, 6, 2, 64);
  request.mutable_fresh()->set_first_row(4);
  v1::RowSource::PagedRows& paged = *request.mutable_cached()->mutable_paged();
  paged.set_cache_id(kCacheId);
  paged.set_layer(1);
  paged.set_values(true);
  paged.mutable_table()->set_inline_le(Int32Bytes({3}));
  request.set_rows(10);
  request.set_prefix(4);
  request.set_cached_bitmap("\xff\x03");
  request.set_suffix(1);
  request.set_must_le(Int32Bytes({5, 9}));
  request.set_metric(v1::DIVERGENCE_METRIC_V_L2);
  request.set_ratio(1.0 / 3);
  request.mutable_previous()->set_hkvd_le(Int32Bytes({4, 6, 8}));
  request.mutable_previous()->set_base(5);
  request.mutable_positions()->set_first_position(0);
  *request.mutable_gather()->mutable_from()->mutable_tensor() = PackedTensor(1, 10, 8, 64);
  *request.mutable_gather()->mutable_to() = PackedTensor(1, 6, 8, 64);
  return request;
}

v1::RerotateRequest ValidRerotate() {
  v1::RerotateRequest request;
  SetKey(*request.mutable_header());
  request.set_cache_id(kCacheId);
  request.set_layers_le(Int32Bytes({0, 1}));
  *request.mutable_sequence() = Sequence(11, 20, 0, 0);
  request.set_first_row(3);
  request.set_rows(5);
  request.mutable_new_positions()->mutable_list()->set_inline_le(Int32Bytes({40, 41, 42, 43, 44}));
  request.set_angles(v1::ANGLE_MODE_EXACT);
  request.mutable_act()->mutable_in_place()->set_ledger_slot(1);
  return request;
}

v1::FuseRequest ValidFuse() {
  v1::FuseRequest request;
  SetKey(*request.mutable_header());
  request.set_cache_id(kCacheId);
  *request.mutable_sequence() = Sequence(11, 20, 0, 0);
  request.set_rows_le(Int32Bytes({2, 19}));
  *request.mutable_keys() = PackedTensor(2, 2, 2, 64);
  *request.mutable_values() = PackedTensor(2, 2, 2, 64);
  request.set_write_back(v1::FuseRequest::WRITE_BACK_PARTIAL);
  request.mutable_in_place()->set_ledger_slot(1);
  return request;
}

v1::ObserveRequest ValidObserve(v1::ScoreInputs::SourceCase source) {
  v1::CompressRequest like = ValidCompressFrom(source);
  v1::ObserveRequest request;
  *request.mutable_header() = like.header();
  request.set_cache_id(like.cache_id());
  for (v1::SequenceSpec& sequence : *like.mutable_sequences()) {
    *request.add_steps()->mutable_sequence() = std::move(sequence);
  }
  request.mutable_steps(0)->set_trigger(12);
  request.mutable_steps(1)->set_draft_rows(1);
  request.mutable_policy()->set_name("h2o");
  request.mutable_policy()->mutable_parts()->mutable_budget()->set_kept_tokens(8);
  *request.mutable_inputs() = like.inputs();
  *request.mutable_act() = like.act();
  *request.mutable_output() = like.output();
  return request;
}

v1::RewindRequest ValidRewind() {
  v1::RewindRequest request;
  SetKey(*request.mutable_header());
  request.set_sequence_id(11);
  request.set_generation(1);
  request.set_rows(3);
  return request;
}

v1::AttachRequest ValidHello() {
  v1::AttachRequest request;
  v1::AttachRequest::Hello& hello = *request.mutable_hello();
  hello.set_min_api_revision(1);
  hello.set_max_api_revision(3);
  hello.set_client("kvtriage-cpp/0.1.0");
  hello.set_rank(1);
  hello.set_world_size(2);
  return request;
}

}  // namespace kvtriage
