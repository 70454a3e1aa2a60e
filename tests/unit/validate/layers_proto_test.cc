#include "service/validate/layers_proto.h"

#include "gtest/gtest.h"
#include "service/validate/body_hash.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

v1::CompressLayersRequest ValidOpen() {
  v1::CompressLayersRequest request;
  *request.mutable_open() = ValidCompress();
  request.mutable_open()->clear_header();
  return request;
}

v1::CompressLayersRequest ValidLayer() {
  v1::CompressLayersRequest request;
  *request.mutable_layer()->mutable_header() = ValidCompress().header();
  request.mutable_layer()->set_layer(5);
  return request;
}

// "reason field" of a refusal, "ok" otherwise.
template <typename T>
std::string Said(const absl::StatusOr<T>& spec) {
  if (spec.ok()) return "ok";
  const auto info = GetErrorInfo(spec.status());
  return std::string(ReasonName(info->reason)) + " " + info->field;
}

std::string Open(const v1::CompressLayersRequest& request) {
  return Said(ParseLayersOpen(request, Limits(), {}));
}

TEST(ParseLayers, OpenIsACompressWithoutHeader) {
  const auto spec = ParseLayersOpen(ValidOpen(), Limits(), {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->cache_id, ValidCompress().cache_id());
  EXPECT_EQ(spec->sequences.size(), 2u);
  v1::CompressLayersRequest request = ValidOpen();
  *request.mutable_open()->mutable_header() = ValidCompress().header();
  EXPECT_EQ(Open(request), "field_invalid open.header");
  EXPECT_EQ(Open(v1::CompressLayersRequest()), "field_missing open");
  EXPECT_EQ(Open(ValidLayer()), "field_missing open");
}

TEST(ParseLayers, EveryRefusalOfCompressNamesTheFieldUnderOpen) {
  v1::CompressLayersRequest request = ValidOpen();
  request.mutable_open()->clear_act();
  EXPECT_EQ(Open(request), "field_missing open.act");
  request = ValidOpen();
  request.mutable_open()->mutable_sequences(1)->set_sequence_id(0);
  EXPECT_EQ(Open(request), "field_invalid open.sequences[1].sequence_id");
}

TEST(ParseLayers, OneSetForAllLayersIsRefused) {
  v1::CompressLayersRequest request = ValidOpen();
  request.mutable_open()->mutable_policy()->mutable_parts()->set_granularity(
      v1::GRANULARITY_PER_LAYER);
  request.mutable_open()->mutable_sequences(0)->clear_protect();
  EXPECT_EQ(Open(request), "ok");
  request.mutable_open()->mutable_policy()->mutable_parts()->set_granularity(
      v1::GRANULARITY_PER_SEQUENCE);
  EXPECT_EQ(Open(request), "policy_invalid open.policy.parts.granularity");
}

TEST(ParseLayers, LayerHasAKeyAndIsNotResolved) {
  const auto spec = ParseLayerReady(ValidLayer());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layer, 5u);
  EXPECT_EQ(spec->header.key[15], 'f');
  v1::CompressLayersRequest request = ValidLayer();
  request.mutable_layer()->mutable_header()->set_idempotency_key("x");
  EXPECT_EQ(Said(ParseLayerReady(request)), "field_invalid layer.header.idempotency_key");
  request = ValidLayer();
  request.mutable_layer()->clear_header();
  EXPECT_EQ(Said(ParseLayerReady(request)), "field_missing layer.header");
  request = ValidLayer();
  request.mutable_layer()->mutable_header()->set_resolve(true);
  EXPECT_EQ(Said(ParseLayerReady(request)), "field_invalid layer.header.resolve");
  EXPECT_EQ(Said(ParseLayerReady(ValidOpen())), "field_invalid open");
  EXPECT_EQ(Said(ParseLayerReady(v1::CompressLayersRequest())), "field_missing layer");
}

TEST(LayerHash, TellsLayersAndStreamsApart) {
  v1::CompressRequest open = ValidOpen().open();
  const BodyDigest digest = BodyHash(open);
  EXPECT_EQ(LayerHash(digest, 3), LayerHash(digest, 3));
  EXPECT_FALSE(LayerHash(digest, 3) == LayerHash(digest, 4));
  EXPECT_FALSE(LayerHash(digest, 0) == digest);
  open.set_cache_id(open.cache_id() + 1);
  EXPECT_FALSE(LayerHash(BodyHash(open), 3) == LayerHash(digest, 3));
}

}  // namespace
}  // namespace kvtriage
