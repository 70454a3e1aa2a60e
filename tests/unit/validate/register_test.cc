// Registrations: what is accepted, and what each malformed one gets.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/validate/region_proto.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using Request = v1::RegisterRegionsRequest;
using Reason = ErrorReason;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

struct Row {
  const char* name;
  std::function<void(Request&)> change;
  absl::StatusCode code;
  Reason reason;
  const char* field;
};

v1::RegionSpec& Region(Request& r) { return *r.mutable_regions(0); }
v1::CacheSpec& Cache(Request& r) { return *r.mutable_caches(0)->mutable_spec(); }
v1::LayerSpec& Layer(Request& r) { return *Cache(r).mutable_layers(1); }
v1::View& K(Request& r) { return *Layer(r).mutable_k(); }
v1::RegionSpec::CudaIpc& Cuda(Request& r) { return *Region(r).mutable_cuda_ipc(); }
v1::View& Companion(Request& r) { return *Layer(r).mutable_companions(0); }

void ExpectRows(const std::vector<Row>& rows, Request (*make)() = &ValidRegister) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Request request = make();
    row.change(request);
    ExpectRefusal(ParseRegister(request, Limits()).status(), row.code, row.reason, row.field);
  }
}

TEST(ParseRegister, GivesThePlainValues) {
  const auto spec = ParseRegister(ValidRegister(), Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->header.key[0], '0');
  ASSERT_EQ(spec->regions.size(), 1u);
  EXPECT_EQ(spec->regions[0].ticket, 3u);
  EXPECT_EQ(spec->regions[0].offset, 4096u);
  EXPECT_EQ(spec->regions[0].size, 1u << 20);
  EXPECT_TRUE(spec->regions[0].writable);
  EXPECT_EQ(spec->regions[0].fingerprint_offset, 64u);
  EXPECT_EQ(spec->regions[0].fingerprint, "kvtriage");
  ASSERT_EQ(spec->caches.size(), 1u);
  EXPECT_EQ(spec->caches[0].tag, 2u);
  EXPECT_EQ(spec->caches[0].spec.num_layers, 4u);
  const LayerSpec& layer = spec->caches[0].spec.layers[1];
  EXPECT_EQ(layer.layer_index, 2u);
  EXPECT_EQ(layer.q_heads, 8u);
  EXPECT_EQ(layer.kv_heads, 2u);
  EXPECT_EQ(layer.k.offset, 131072u);
  EXPECT_EQ(layer.v.offset, 131072u + 32768u);
  EXPECT_EQ(layer.k.layout.dtype, DType::kF16);
  EXPECT_EQ(layer.k.layout.slot_stride, 256u);
  EXPECT_TRUE(layer.k.layout.contiguous_rows());
  ASSERT_EQ(layer.companions.size(), 1u);
  EXPECT_EQ(layer.companions[0].layout.row_bytes(), 4u);
}

TEST(ParseRegister, GivesTheAllocationOfACudaRegion) {
  Request request = ValidCudaRegister();
  std::string handle(64, '\0');
  for (size_t i = 0; i < handle.size(); ++i) handle[i] = static_cast<char>(200 + i);
  Cuda(request).set_handle(handle);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->regions[0].size, 1u << 20);
  EXPECT_TRUE(spec->regions[0].writable);
  EXPECT_EQ(spec->regions[0].tag, 1u);
  EXPECT_EQ(spec->regions[0].fingerprint, "kvtriage");
  ASSERT_TRUE(spec->regions[0].cuda.has_value());
  const CudaAllocation& cuda = *spec->regions[0].cuda;
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(static_cast<uint8_t>(cuda.handle[i]), uint8_t(200 + i));
  EXPECT_EQ(cuda.device_uuid, "GPU-6b767472-6961-6765-2d66-616b652d6400");
  EXPECT_EQ(cuda.base_offset, 512u);
  EXPECT_EQ(cuda.allocation_bytes, 2u << 20);
  EXPECT_EQ(cuda.exporter_pid, 7u);
  EXPECT_EQ(cuda.generation, 9u);
  EXPECT_FALSE(ParseRegister(ValidRegister(), Limits())->regions[0].cuda.has_value());
}

TEST(ParseRegister, ACudaRegionMayBeTheWholeAllocation) {
  Request request = ValidCudaRegister();
  Cuda(request).set_base_offset(0);
  Cuda(request).set_allocation_bytes(1 << 20);
  EXPECT_TRUE(ParseRegister(request, Limits()).ok());
  Cuda(request).set_device_uuid("MIG-GPU-6b767472-6961-6765-2d66-616b652d6400/1/0");
  EXPECT_TRUE(ParseRegister(request, Limits()).ok());
}

TEST(ParseRegister, TellsWhichAlibiLayersMayMove) {
  Request request = ValidRegister();
  for (v1::LayerSpec& layer : *Cache(request).mutable_layers()) {
    layer.set_kind(v1::LAYER_KIND_ALIBI);
  }
  Layer(request).set_position_aware(true);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::vector<LayerSpec>& layers = spec->caches[0].spec.layers;
  EXPECT_EQ(layers[0].kind, LayerKind::kAlibi);
  EXPECT_FALSE(layers[0].movable());
  EXPECT_TRUE(layers[1].movable());
}

TEST(ParseRegister, SlidingLayersAreNeverMoved) {
  Request request = ValidRegister();
  Layer(request).set_kind(v1::LAYER_KIND_SLIDING);
  Layer(request).set_sliding_window(4096);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::vector<LayerSpec>& layers = spec->caches[0].spec.layers;
  EXPECT_EQ(layers[1].kind, LayerKind::kSliding);
  EXPECT_EQ(layers[1].sliding_window, 4096u);
  EXPECT_FALSE(layers[1].movable());
  EXPECT_EQ(layers[0].sliding_window, 0u);
  EXPECT_TRUE(layers[0].movable());
}

TEST(ParseRegister, KindsThatAreNotBuiltAreNamed) {
  Request request = ValidRegister();
  Layer(request).set_kind(v1::LAYER_KIND_CHUNKED);
  EXPECT_THAT(std::string(ParseRegister(request, Limits()).status().message()),
              testing::HasSubstr("CHUNKED"));
  Layer(request).set_kind(v1::LAYER_KIND_RECURRENT);
  EXPECT_THAT(std::string(ParseRegister(request, Limits()).status().message()),
              testing::HasSubstr("RECURRENT"));
}

TEST(ParseRegister, MlaValuesAreAPartOfTheKeyRows) {
  Request request = ValidLatentRegister();
  auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const LayerSpec& layer = spec->caches[0].spec.layers[1];
  EXPECT_TRUE(layer.v_in_k);
  EXPECT_TRUE(layer.movable());
  EXPECT_EQ(layer.v.offset, layer.k.offset + 64);
  EXPECT_TRUE(layer.k_scales.has_value());
  EXPECT_FALSE(layer.v_scales.has_value());
  EXPECT_EQ(layer.v.layout.row_elems, 512u);
  EXPECT_EQ(layer.v.layout.slot_stride, layer.k.layout.slot_stride);
  EXPECT_EQ(layer.v.region_id, layer.k.region_id);
  // The last elements of the row, and one more.
  Layer(request).set_v_in_k_first_elem(65);
  ExpectRefusal(ParseRegister(request, Limits()).status(), kInvalid, Reason::kGeometryInvalid,
                "caches[0].spec.layers[1].v_elems");
  Layer(request).set_v_in_k_first_elem(~0u);
  ExpectRefusal(ParseRegister(request, Limits()).status(), kInvalid, Reason::kGeometryInvalid,
                "caches[0].spec.layers[1].v_elems");
  Layer(request).set_v_elems(0);
  ExpectRefusal(ParseRegister(request, Limits()).status(), kInvalid, Reason::kFieldInvalid,
                "caches[0].spec.layers[1].v_elems");
}

TEST(ParseRegister, OpaqueMlaRowsHaveNoValuesOfTheirOwn) {
  Request request = ValidLatentRegister();
  K(request).clear_scale();
  K(request).set_opaque_row_bytes(576);  // a mixed encoding of one token
  K(request).set_row_elems(0);
  K(request).set_elem_stride(0);
  Layer(request).set_rope_index(0);
  Layer(request).clear_value();
  Layer(request).set_v_elems(0);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->caches[0].spec.layers[1].v_in_k);
  Layer(request).set_v_elems(512);
  ExpectRefusal(ParseRegister(request, Limits()).status(), kInvalid, Reason::kFieldInvalid,
                "caches[0].spec.layers[1].v_elems");
}

void MakeF8(v1::View& view) {
  view.set_dtype(v1::DTYPE_FP8_E4M3);
  view.set_elem_stride(1);
}

v1::ScaleView& RowScales(v1::View& view, uint64_t offset) {
  v1::ScaleView& rows = *view.mutable_scale()->mutable_per_row();
  rows.set_region_id(1);
  rows.set_offset(offset);
  rows.set_head_stride(4);
  rows.set_slot_stride(8);
  rows.set_block_stride(128);
  return rows;
}

TEST(ParseRegister, ScalesOfF8Rows) {
  Request request = ValidRegister();
  MakeF8(K(request));
  MakeF8(*Layer(request).mutable_v());
  K(request).mutable_scale()->set_constant(0.25f);
  RowScales(*Layer(request).mutable_v(), 900000);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const LayerSpec& layer = spec->caches[0].spec.layers[1];
  EXPECT_EQ(layer.k.layout.dtype, DType::kF8E4M3);
  EXPECT_EQ(layer.k.layout.row_bytes(), 64u);
  EXPECT_EQ(layer.k.layout.scale, 0.25f);
  EXPECT_FALSE(layer.k_scales.has_value());
  EXPECT_EQ(layer.v.layout.scale, 1.0f);
  ASSERT_TRUE(layer.v_scales.has_value());
  EXPECT_EQ(layer.v_scales->offset, 900000u);
  EXPECT_EQ(layer.v_scales->layout.opaque_row_bytes, 4u);
  EXPECT_EQ(layer.v_scales->layout.slot_stride, 8u);
  EXPECT_EQ(layer.v_scales->layout.num_blocks, 8u);
}

TEST(RegisterRefusals, Scales) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0f, -0.0f, -1.0f, nan, inf}) {
    SCOPED_TRACE(bad);
    Request request = ValidRegister();
    MakeF8(K(request));
    K(request).mutable_scale()->set_constant(bad);
    ExpectRefusal(ParseRegister(request, Limits()).status(), kInvalid, Reason::kFieldInvalid,
                  "caches[0].spec.layers[1].k.scale.constant");
  }
  ExpectRows({
      {"scale of f16 rows", [](Request& r) { K(r).mutable_scale()->set_constant(1); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].k.scale"},
      {"scale of an opaque companion",
       [](Request& r) { Companion(r).mutable_scale()->set_constant(1); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].companions[0].scale"},
      {"scale of no kind", [](Request& r) { MakeF8(K(r)), K(r).mutable_scale(); }, kInvalid,
       Reason::kFieldMissing, "caches[0].spec.layers[1].k.scale.kind"},
      {"scales in no region",
       [](Request& r) { MakeF8(K(r)), RowScales(K(r), 900000).clear_region_id(); }, kInvalid,
       Reason::kFieldMissing, "caches[0].spec.layers[1].k.scale.per_row.region_id"},
      {"scales in a region that the call has not",
       [](Request& r) { MakeF8(K(r)), RowScales(K(r), 900000).set_region_id(2); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].k.scale.per_row.region_id"},
      {"scales at odd places", [](Request& r) { MakeF8(K(r)), RowScales(K(r), 900001); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].k.scale.per_row.offset"},
      {"scales that overlap",
       [](Request& r) { MakeF8(K(r)), RowScales(K(r), 900000).set_slot_stride(4); }, kInvalid,
       Reason::kViewNotNested, "caches[0].spec.layers[1].k.scale.per_row"},
      {"scales that wrap",
       [](Request& r) { MakeF8(K(r)), RowScales(K(r), 900000).set_block_stride(~uint64_t{3}); },
       kInvalid, Reason::kGeometryOverflow, "caches[0].spec.layers[1].k.scale.per_row"},
  });
}

TEST(RegisterRefusals, Regions) {
  ExpectRows({
      {"no header", [](Request& r) { r.clear_header(); }, kInvalid, Reason::kFieldMissing,
       "header"},
      {"nothing",
       [](Request& r) {
         r.clear_regions();
         r.clear_caches();
       },
       kInvalid, Reason::kFieldMissing, "regions"},
      {"513 regions",
       [](Request& r) {
         while (r.regions_size() < 513) r.add_regions();
       },
       kInvalid, Reason::kTooMany, "regions"},
      {"17 caches",
       [](Request& r) {
         while (r.caches_size() < 17) r.add_caches();
       },
       kInvalid, Reason::kTooMany, "caches"},
      {"no source", [](Request& r) { Region(r).clear_source(); }, kInvalid, Reason::kFieldMissing,
       "regions[0].host"},
      {"offset inside a page", [](Request& r) { Region(r).mutable_host()->set_offset(100); },
       kInvalid, Reason::kFieldInvalid, "regions[0].host.offset"},
      {"size 0", [](Request& r) { Region(r).set_size(0); }, kInvalid, Reason::kFieldInvalid,
       "regions[0].size"},
      {"no access", [](Request& r) { Region(r).clear_access(); }, kInvalid,
       Reason::kEnumUnspecified, "regions[0].access"},
      {"unknown access", [](Request& r) { Region(r).set_access(static_cast<v1::Access>(3)); },
       kInvalid, Reason::kEnumUnspecified, "regions[0].access"},
      {"empty fingerprint", [](Request& r) { Region(r).mutable_fingerprint()->clear_expected(); },
       kInvalid, Reason::kFieldInvalid, "regions[0].fingerprint.expected"},
      {"fingerprint of 65 bytes",
       [](Request& r) { Region(r).mutable_fingerprint()->set_expected(std::string(65, 'x')); },
       kInvalid, Reason::kFieldInvalid, "regions[0].fingerprint.expected"},
      // Kind: size arithmetic that wraps.
      // https://github.com/triton-inference-server/server/pull/8170
      {"fingerprint past the end",
       [](Request& r) { Region(r).mutable_fingerprint()->set_offset((1 << 20) - 7); },
       absl::StatusCode::kOutOfRange, Reason::kRangeOutOfRegion, "regions[0].fingerprint.offset"},
      {"fingerprint offset wraps",
       [](Request& r) { Region(r).mutable_fingerprint()->set_offset(~uint64_t{0} - 3); },
       absl::StatusCode::kOutOfRange, Reason::kRangeOutOfRegion, "regions[0].fingerprint.offset"},
  });
}

TEST(RegisterRefusals, CudaRegions) {
  constexpr auto kOutside = absl::StatusCode::kOutOfRange;
  ExpectRows(
      {
          {"handle of 63 bytes", [](Request& r) { Cuda(r).set_handle(std::string(63, 'h')); },
           kInvalid, Reason::kHandleMalformed, "regions[0].cuda_ipc.handle"},
          {"handle of 65 bytes", [](Request& r) { Cuda(r).set_handle(std::string(65, 'h')); },
           kInvalid, Reason::kHandleMalformed, "regions[0].cuda_ipc.handle"},
          {"no handle", [](Request& r) { Cuda(r).clear_handle(); }, kInvalid,
           Reason::kHandleMalformed, "regions[0].cuda_ipc.handle"},
          {"no device", [](Request& r) { Cuda(r).clear_device_uuid(); }, kInvalid,
           Reason::kFieldMissing, "regions[0].cuda_ipc.device_uuid"},
          {"an ordinal", [](Request& r) { Cuda(r).set_device_uuid("0"); }, kInvalid,
           Reason::kFieldInvalid, "regions[0].cuda_ipc.device_uuid"},
          {"a UUID with a blank", [](Request& r) { Cuda(r).set_device_uuid("GPU-6b 7"); }, kInvalid,
           Reason::kFieldInvalid, "regions[0].cuda_ipc.device_uuid"},
          {"a UUID of 97 bytes",
           [](Request& r) { Cuda(r).set_device_uuid("GPU-" + std::string(93, 'a')); }, kInvalid,
           Reason::kFieldInvalid, "regions[0].cuda_ipc.device_uuid"},
          // Kind: a forgotten offset is another tensor.
          // https://github.com/kvcache-ai/Mooncake/issues/3546
          {"no base offset", [](Request& r) { Cuda(r).clear_base_offset(); }, kInvalid,
           Reason::kFieldMissing, "regions[0].cuda_ipc.base_offset"},
          {"no allocation size", [](Request& r) { Cuda(r).clear_allocation_bytes(); }, kInvalid,
           Reason::kFieldMissing, "regions[0].cuda_ipc.allocation_bytes"},
          {"no process", [](Request& r) { Cuda(r).clear_exporter_pid(); }, kInvalid,
           Reason::kFieldMissing, "regions[0].cuda_ipc.exporter_pid"},
          {"no generation", [](Request& r) { Cuda(r).clear_generation(); }, kInvalid,
           Reason::kFieldMissing, "regions[0].cuda_ipc.generation"},
          {"one byte past the allocation",
           [](Request& r) { Cuda(r).set_base_offset((1 << 20) + 1); }, kOutside,
           Reason::kRangeOutOfRegion, "regions[0].cuda_ipc.base_offset"},
          {"offset that wraps", [](Request& r) { Cuda(r).set_base_offset(~uint64_t{0} - 100); },
           kOutside, Reason::kRangeOutOfRegion, "regions[0].cuda_ipc.base_offset"},
          {"allocation smaller than the region",
           [](Request& r) { Cuda(r).set_allocation_bytes(100); }, kOutside,
           Reason::kRangeOutOfRegion, "regions[0].cuda_ipc.base_offset"},
          {"size 0", [](Request& r) { Region(r).set_size(0); }, kInvalid, Reason::kFieldInvalid,
           "regions[0].size"},
          {"no access", [](Request& r) { Region(r).clear_access(); }, kInvalid,
           Reason::kEnumUnspecified, "regions[0].access"},
          {"fingerprint past the end",
           [](Request& r) { Region(r).mutable_fingerprint()->set_offset((1 << 20) - 7); }, kOutside,
           Reason::kRangeOutOfRegion, "regions[0].fingerprint.offset"},
          {"virtual memory management", [](Request& r) { Region(r).mutable_cuda_vmm(); },
           kUnimplemented, Reason::kUnsupported, "regions[0].cuda_vmm"},
      },
      &ValidCudaRegister);
}

TEST(RegisterRefusals, Layers) {
  ExpectRows({
      {"no spec", [](Request& r) { r.mutable_caches(0)->clear_spec(); }, kInvalid,
       Reason::kFieldMissing, "caches[0].spec"},
      {"no layers", [](Request& r) { Cache(r).clear_layers(); }, kInvalid, Reason::kFieldMissing,
       "caches[0].spec.layers"},
      {"257 layers",
       [](Request& r) {
         while (Cache(r).layers_size() < 257) Cache(r).add_layers();
       },
       kInvalid, Reason::kTooMany, "caches[0].spec.layers"},
      {"no number of layers", [](Request& r) { Cache(r).clear_num_layers(); }, kInvalid,
       Reason::kFieldMissing, "caches[0].spec.num_layers"},
      {"more layers than a model has", [](Request& r) { Cache(r).set_num_layers(4097); }, kInvalid,
       Reason::kTooMany, "caches[0].spec.num_layers"},
      // Kind: division by layers minus one. https://github.com/NVIDIA/kvpress/pull/266
      {"layer past the model", [](Request& r) { Layer(r).set_layer_index(4); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].layer_index"},
      {"layer twice", [](Request& r) { Layer(r).set_layer_index(1); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].layer_index"},
      {"no kind", [](Request& r) { Layer(r).clear_kind(); }, kInvalid, Reason::kEnumUnspecified,
       "caches[0].spec.layers[1].kind"},
      {"sliding without a window", [](Request& r) { Layer(r).set_kind(v1::LAYER_KIND_SLIDING); },
       kInvalid, Reason::kFieldMissing, "caches[0].spec.layers[1].sliding_window"},
      {"a window without sliding", [](Request& r) { Layer(r).set_sliding_window(1); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].sliding_window"},
      {"chunked", [](Request& r) { Layer(r).set_kind(v1::LAYER_KIND_CHUNKED); }, kUnimplemented,
       Reason::kUnsupported, "caches[0].spec.layers[1].kind"},
      {"MLA of two heads", [](Request& r) { Layer(r).set_kind(v1::LAYER_KIND_MLA); }, kInvalid,
       Reason::kGeometryInvalid, "caches[0].spec.layers[1].kv_heads"},
      {"V inside K, not MLA", [](Request& r) { Layer(r).set_v_in_k_first_elem(0); }, kInvalid,
       Reason::kViewOverlap, "caches[0].spec.layers[1].v_in_k_first_elem"},
      {"position aware, not ALiBi", [](Request& r) { Layer(r).set_position_aware(true); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].position_aware"},
      {"recurrent", [](Request& r) { Layer(r).set_kind(v1::LAYER_KIND_RECURRENT); }, kUnimplemented,
       Reason::kUnsupported, "caches[0].spec.layers[1].kind"},
      {"unknown kind", [](Request& r) { Layer(r).set_kind(static_cast<v1::LayerKind>(7)); },
       kInvalid, Reason::kEnumUnspecified, "caches[0].spec.layers[1].kind"},
      {"1,025 query heads", [](Request& r) { Layer(r).set_q_heads(1026); }, kInvalid,
       Reason::kTooMany, "caches[0].spec.layers[1].q_heads"},
      {"257 KV heads",
       [](Request& r) {
         Layer(r).set_q_heads(514);
         Layer(r).set_kv_heads(257);
       },
       kInvalid, Reason::kTooMany, "caches[0].spec.layers[1].kv_heads"},
      {"no k", [](Request& r) { Layer(r).clear_k(); }, kInvalid, Reason::kFieldMissing,
       "caches[0].spec.layers[1].k"},
      {"no v", [](Request& r) { Layer(r).clear_v(); }, kInvalid, Reason::kFieldMissing,
       "caches[0].spec.layers[1].v"},
      {"k heads differ", [](Request& r) { K(r).set_heads(1); }, kInvalid, Reason::kGeometryInvalid,
       "caches[0].spec.layers[1].k.heads"},
      {"v heads differ", [](Request& r) { Layer(r).mutable_v()->set_heads(1); }, kInvalid,
       Reason::kGeometryInvalid, "caches[0].spec.layers[1].v.heads"},
      {"v blocks differ", [](Request& r) { Layer(r).mutable_v()->set_num_blocks(7); }, kInvalid,
       Reason::kGeometryInvalid, "caches[0].spec.layers[1].v.num_blocks"},
      {"v slots differ", [](Request& r) { Layer(r).mutable_v()->set_block_slots(8); }, kInvalid,
       Reason::kGeometryInvalid, "caches[0].spec.layers[1].v.block_slots"},
      {"dv differs", [](Request& r) { Layer(r).set_v_elems(128); }, kInvalid,
       Reason::kGeometryInvalid, "caches[0].spec.layers[1].v_elems"},
      {"five companions",
       [](Request& r) {
         while (Layer(r).companions_size() < 5) Layer(r).add_companions();
       },
       kInvalid, Reason::kTooMany, "caches[0].spec.layers[1].companions"},
      {"companion with a dtype", [](Request& r) { Companion(r) = K(r); }, kInvalid,
       Reason::kFieldInvalid, "caches[0].spec.layers[1].companions[0].opaque_row_bytes"},
      {"companion of other slots", [](Request& r) { Companion(r).set_block_slots(4); }, kInvalid,
       Reason::kGeometryInvalid, "caches[0].spec.layers[1].companions[0].block_slots"},
      {"layers of other slots",
       [](Request& r) {
         K(r).set_block_slots(8);
         Layer(r).mutable_v()->set_block_slots(8);
         Companion(r).set_block_slots(8);
       },
       kInvalid, Reason::kGeometryInvalid, "caches[0].spec.layers[1].k.block_slots"},
  });
}

// Kind: heads that do not divide.
// https://github.com/fla-org/flash-linear-attention/issues/1029
TEST(RegisterRefusals, HeadsNameBothNumbers) {
  const struct {
    uint32_t q, kv;
    Reason reason;
    const char* field;
  } cases[] = {{33, 2, Reason::kGeometryInvalid, "q_heads"},
               {3, 2, Reason::kGeometryInvalid, "q_heads"},
               {2, 3, Reason::kGeometryInvalid, "q_heads"},
               {0, 1, Reason::kFieldInvalid, "q_heads"},
               {1, 0, Reason::kFieldInvalid, "kv_heads"}};
  for (const auto& c : cases) {
    Request request = ValidRegister();
    Layer(request).set_q_heads(c.q);
    Layer(request).set_kv_heads(c.kv);
    const absl::Status status = ParseRegister(request, Limits()).status();
    ExpectRefusal(status, kInvalid, c.reason, std::string("caches[0].spec.layers[1].") + c.field);
    EXPECT_EQ(GetErrorInfo(status)->got, c.q);
    EXPECT_EQ(GetErrorInfo(status)->limit, c.kv);
  }
}

TEST(RegisterRefusals, Views) {
  const std::string k = "caches[0].spec.layers[1].k";
  const std::string companion = "caches[0].spec.layers[1].companions[0]";
  const std::string at[] = {k + ".region_id",
                            k + ".num_blocks",
                            k + ".block_slots",
                            k + ".heads",
                            k + ".dtype",
                            k + ".row_elems",
                            k + ".offset",
                            k + ".block_stride",
                            k + ".elem_stride",
                            companion + ".opaque_row_bytes",
                            companion + ".row_elems",
                            companion + ".elem_stride"};
  ExpectRows({
      {"no region", [](Request& r) { K(r).clear_region_id(); }, kInvalid, Reason::kFieldMissing,
       at[0].c_str()},
      {"region of another call", [](Request& r) { K(r).set_region_id(2); }, kInvalid,
       Reason::kFieldInvalid, at[0].c_str()},
      {"0 blocks", [](Request& r) { K(r).set_num_blocks(0); }, kInvalid, Reason::kFieldInvalid,
       at[1].c_str()},
      {"0 slots", [](Request& r) { K(r).set_block_slots(0); }, kInvalid, Reason::kFieldInvalid,
       at[2].c_str()},
      {"0 heads", [](Request& r) { K(r).set_heads(0); }, kInvalid, Reason::kFieldInvalid,
       at[3].c_str()},
      {"no encoding", [](Request& r) { K(r).clear_encoding(); }, kInvalid, Reason::kFieldMissing,
       at[4].c_str()},
      {"dtype 0", [](Request& r) { K(r).set_dtype(v1::DTYPE_UNSPECIFIED); }, kInvalid,
       Reason::kEnumUnspecified, at[4].c_str()},
      {"unknown dtype", [](Request& r) { K(r).set_dtype(static_cast<v1::DType>(6)); }, kInvalid,
       Reason::kEnumUnspecified, at[4].c_str()},
      {"head size 0", [](Request& r) { K(r).set_row_elems(0); }, kInvalid, Reason::kFieldInvalid,
       at[5].c_str()},
      {"head size 577", [](Request& r) { K(r).set_row_elems(577); }, kUnimplemented,
       Reason::kUnsupported, at[5].c_str()},
      {"odd offset", [](Request& r) { K(r).set_offset(1); }, kInvalid, Reason::kFieldInvalid,
       at[6].c_str()},
      {"odd stride", [](Request& r) { K(r).set_block_stride(4097); }, kInvalid,
       Reason::kFieldInvalid, at[7].c_str()},
      {"odd element stride", [](Request& r) { K(r).set_elem_stride(3); }, kInvalid,
       Reason::kFieldInvalid, at[8].c_str()},
      {"opaque row of 0 bytes", [](Request& r) { Companion(r).set_opaque_row_bytes(0); }, kInvalid,
       Reason::kFieldInvalid, at[9].c_str()},
      {"opaque row of 8,193 bytes", [](Request& r) { Companion(r).set_opaque_row_bytes(8193); },
       kInvalid, Reason::kFieldInvalid, at[9].c_str()},
      {"opaque row with elements", [](Request& r) { Companion(r).set_row_elems(4); }, kInvalid,
       Reason::kFieldInvalid, at[10].c_str()},
      {"opaque row with strides", [](Request& r) { Companion(r).set_elem_stride(1); }, kInvalid,
       Reason::kFieldInvalid, at[11].c_str()},
      // Kind: a layout guessed from its shape. https://github.com/LMCache/LMCache/pull/4607
      // Kind: padded strides. https://github.com/vllm-project/vllm/pull/57477
      {"strides left 0",
       [](Request& r) {
         K(r).set_block_stride(0);
         K(r).set_head_stride(0);
         K(r).set_slot_stride(0);
         K(r).set_elem_stride(0);
       },
       kInvalid, Reason::kViewNotNested, k.c_str()},
      {"stride 0 on a long axis", [](Request& r) { K(r).set_slot_stride(0); }, kInvalid,
       Reason::kViewNotNested, k.c_str()},
      {"a negative stride", [](Request& r) { K(r).set_head_stride(~uint64_t{0} - 1023); }, kInvalid,
       Reason::kGeometryOverflow, k.c_str()},
      // Kind: size arithmetic that wraps.
      // https://github.com/triton-inference-server/server/pull/8182
      {"blocks x stride wraps",
       [](Request& r) {
         K(r).set_num_blocks(0xFFFFFFFF);
         K(r).set_block_stride(uint64_t{1} << 33);
       },
       kInvalid, Reason::kGeometryOverflow, k.c_str()},
      {"2^31 blocks", [](Request& r) { K(r).set_num_blocks(0x80000000); }, kInvalid,
       Reason::kTooMany, at[1].c_str()},
  });
}

// Kind: the head size differs by layer. https://github.com/LMCache/LMCache/issues/4358
// https://github.com/LMCache/LMCache/issues/4263
TEST(ParseRegister, LayersHaveTheirOwnHeadsAndSizes) {
  Request request = ValidRegister();
  v1::LayerSpec& layer = Layer(request);
  layer.set_kv_heads(1);
  layer.set_q_heads(3);
  layer.set_v_elems(128);
  layer.clear_companions();
  for (v1::View* view : {layer.mutable_k(), layer.mutable_v()}) {
    view->set_heads(1);
    view->set_row_elems(128);
  }
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->caches[0].spec.layers[0].k.layout.row_elems, 64u);
  EXPECT_EQ(spec->caches[0].spec.layers[1].k.layout.row_elems, 128u);
  EXPECT_EQ(spec->caches[0].spec.layers[1].kv_heads, 1u);
}

TEST(ParseRegister, TransposedPaddedAndOpaqueViewsPass) {
  Request request = ValidRegister();
  v1::View& k = K(request);
  k.set_elem_stride(32);  // [block, head, elem, slot]
  k.set_slot_stride(2);
  k.set_head_stride(2048);
  k.set_block_stride(19008);
  v1::View& v = *Layer(request).mutable_v();
  v.set_opaque_row_bytes(132);
  v.set_row_elems(0);
  v.set_elem_stride(0);
  v.set_head_stride(132);
  v.set_slot_stride(264);
  v.set_block_stride(264 * 16);
  Layer(request).set_v_elems(0);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->caches[0].spec.layers[1].k.layout.contiguous_rows());
  EXPECT_TRUE(spec->caches[0].spec.layers[1].v.layout.opaque());
}

TEST(ParseRegister, CachesMayUseRegionsRegisteredBefore) {
  Request request = ValidRegister();
  request.clear_regions();
  ExpectRefusal(ParseRegister(request, Limits()).status(), kInvalid, Reason::kFieldInvalid,
                "caches[0].spec.layers[0].k.region_id");
  for (v1::LayerSpec& layer : *Cache(request).mutable_layers()) {
    layer.clear_companions();
    layer.mutable_k()->set_region_id(uint64_t{1} << 32);
    layer.mutable_v()->set_region_id(~uint64_t{0});
  }
  EXPECT_TRUE(ParseRegister(request, Limits()).ok());
}

TEST(ParseRegister, CountsMayReachTheirLimits) {
  Request request = ValidRegister();
  while (request.regions_size() < 512) *request.add_regions() = request.regions(0);
  while (request.caches_size() < 16) *request.add_caches() = request.caches(0);
  Cache(request).set_num_layers(256);
  v1::LayerSpec layer = Layer(request);
  Cache(request).clear_layers();
  layer.set_q_heads(1024);
  layer.set_kv_heads(256);
  layer.clear_companions();
  for (v1::View* view : {layer.mutable_k(), layer.mutable_v()}) {
    view->set_heads(256);
    view->set_row_elems(576);
    view->set_num_blocks(0x7FFFFFFF);
    view->set_head_stride(1152);
    view->set_slot_stride(1152 * 256);
    view->set_block_stride(1152 * 256 * 16);
  }
  layer.set_v_elems(576);
  for (uint32_t i = 0; i < 256; ++i) {
    layer.set_layer_index(i);
    *Cache(request).add_layers() = layer;
  }
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->caches[0].spec.layers.size(), 256u);
}

TEST(ParseRegister, OperatorsLimitsHold) {
  Limits limits;
  limits.max_regions = 0;
  ExpectRefusal(ParseRegister(ValidRegister(), limits).status(), kInvalid, Reason::kTooMany,
                "regions");
  limits = Limits();
  limits.max_caches = 0;
  ExpectRefusal(ParseRegister(ValidRegister(), limits).status(), kInvalid, Reason::kTooMany,
                "caches");
}

TEST(ParseRegister, ResolveIgnoresTheBody) {
  Request request;
  request.mutable_header()->set_idempotency_key("0123456789abcdef");
  request.mutable_header()->set_resolve(true);
  const auto spec = ParseRegister(request, Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->header.resolve);
}

}  // namespace
}  // namespace kvtriage
