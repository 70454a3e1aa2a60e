// Cache descriptions as messages.
#include "client/cpp/cache_to_proto.h"

#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

TEST(CacheProto, RopesKeepTheirNumbers) {
  CacheSpec cache;
  cache.num_layers = 2;
  RopeSpec& rope = cache.ropes.emplace_back();
  rope.pairing = RopePairing::kInterleaved;
  rope.rotary_dim = 64;
  rope.rotary_offset = 512;
  rope.speeds = ThetaSpeeds{1e4, YarnScaling{4, 16, 2, 4096}};
  rope.attention_factor = 1.25;
  rope.mrope_sections = {16, 8, 8};
  RopeSpec& listed = cache.ropes.emplace_back();
  listed.pairing = RopePairing::kHalf;
  listed.rotary_dim = 4;
  listed.speeds = std::vector<double>{1, 0.5};
  cache.layers.emplace_back().rope_index = 2;

  const v1::CacheSpec sent = ToProto(cache, MemoryIds());
  ASSERT_EQ(sent.ropes_size(), 2);
  EXPECT_EQ(sent.ropes(0).pairing(), v1::ROPE_PAIRING_INTERLEAVED);
  EXPECT_EQ(sent.ropes(0).rotary_dim(), 64u);
  EXPECT_EQ(sent.ropes(0).rotary_offset(), 512u);
  EXPECT_EQ(sent.ropes(0).theta().theta(), 1e4);
  EXPECT_EQ(sent.ropes(0).theta().yarn().factor(), 4);
  EXPECT_EQ(sent.ropes(0).theta().yarn().beta_fast(), 16);
  EXPECT_EQ(sent.ropes(0).theta().yarn().beta_slow(), 2);
  EXPECT_EQ(sent.ropes(0).theta().yarn().original_length(), 4096u);
  EXPECT_EQ(sent.ropes(0).attention_factor(), 1.25);
  EXPECT_EQ(sent.ropes(0).mrope_sections_size(), 3);
  EXPECT_EQ(sent.ropes(1).speeds_f64le().size(), 16u);
  EXPECT_EQ(sent.layers(0).rope_index(), 2u);
}

TEST(CacheProto, LatentRowsAndTheirScales) {
  CacheSpec cache;
  LayerSpec& layer = cache.layers.emplace_back();
  layer.kind = LayerKind::kMla;
  layer.q_heads = 128;
  layer.kv_heads = 1;
  layer.k = ContiguousView(Region::OfThisCall(0), 4096, 1, 64, 576, DType::kF8E4M3);
  layer.k.row_scales = RowScales{Region::OfThisCall(1), 256, 0, 0, 4};
  layer.v_in_k = LayerSpec::Slice{64, 512};
  const v1::LayerSpec sent = ToProto(cache, MemoryIds()).layers(0);
  EXPECT_EQ(sent.kind(), v1::LAYER_KIND_MLA);
  EXPECT_EQ(sent.k().dtype(), v1::DTYPE_FP8_E4M3);
  EXPECT_EQ(sent.k().elem_stride(), 1u);
  EXPECT_EQ(sent.k().scale().per_row().offset(), 256u);
  EXPECT_EQ(sent.k().scale().per_row().slot_stride(), 4u);
  EXPECT_EQ(sent.value_case(), v1::LayerSpec::kVInKFirstElem);
  EXPECT_EQ(sent.v_in_k_first_elem(), 64u);
  EXPECT_EQ(sent.v_elems(), 512u);
}

TEST(CacheProto, SlidingLayersNameTheirWindow) {
  CacheSpec cache;
  cache.layers.resize(2);
  cache.layers[1].kind = LayerKind::kSliding;
  cache.layers[1].sliding_window = 1024;
  const v1::CacheSpec sent = ToProto(cache, MemoryIds());
  EXPECT_EQ(sent.layers(0).sliding_window(), 0u);
  EXPECT_EQ(sent.layers(1).kind(), v1::LAYER_KIND_SLIDING);
  EXPECT_EQ(sent.layers(1).sliding_window(), 1024u);
}

TEST(CacheProto, AScaleForAllRowsIsSentWhereThereIsOne) {
  CacheSpec cache;
  LayerSpec& layer = cache.layers.emplace_back();
  layer.k = ContiguousView({}, 0, 2, 64, 128, DType::kF8E5M2);
  layer.v = layer.k;
  layer.v.scale = 0.25f;
  const v1::LayerSpec sent = ToProto(cache, MemoryIds()).layers(0);
  EXPECT_FALSE(sent.k().has_scale());
  EXPECT_EQ(sent.v().scale().constant(), 0.25f);
  EXPECT_EQ(sent.v_elems(), 128u);
}

TEST(CacheProto, EveryScalingIsSent) {
  CacheSpec cache;
  cache.ropes.resize(4);
  cache.ropes[3].speeds = ThetaSpeeds{1e4, OtherScaling{OtherScaling::Kind::kLongRope}};
  cache.ropes[0].speeds = ThetaSpeeds{1e4, {}};
  cache.ropes[1].speeds = ThetaSpeeds{1e4, LinearScaling{2}};
  cache.ropes[2].speeds = ThetaSpeeds{5e5, Llama3Scaling{}};
  const v1::CacheSpec sent = ToProto(cache, MemoryIds());
  EXPECT_EQ(sent.ropes(0).theta().scaling_case(), v1::RopeSpec::ThetaSpeeds::SCALING_NOT_SET);
  EXPECT_EQ(sent.ropes(1).theta().linear().factor(), 2);
  EXPECT_EQ(sent.ropes(3).theta().other(), v1::RopeSpec::LONGROPE);
  EXPECT_EQ(sent.ropes(2).theta().llama3().factor(), 8);
  EXPECT_EQ(sent.ropes(2).theta().llama3().low(), 1);
  EXPECT_EQ(sent.ropes(2).theta().llama3().high(), 4);
  EXPECT_EQ(sent.ropes(2).theta().llama3().original_length(), 8192u);
}

}  // namespace
}  // namespace kvtriage::client
