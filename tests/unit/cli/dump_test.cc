#include "client/cli/dump.h"

#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cli/dump_file.h"

namespace kvtriage::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::StatusOr<Dump> OpenChanged(const std::function<void(CacheDumpContent&)>& change) {
  CacheDumpContent content;
  change(content);
  const TemporaryFile file(content.File());
  return Dump::Open(file.path());
}

void ExpectRefused(const std::function<void(CacheDumpContent&)>& change, const std::string& what,
                   const std::string& expected) {
  const auto dump = OpenChanged(change);
  ASSERT_FALSE(dump.ok()) << what << " was accepted";
  EXPECT_THAT(std::string(dump.status().message()), AllOf(HasSubstr(what), HasSubstr(expected)));
}

TEST(Dump, ShapesComeFromTheTensors) {
  const auto dump = OpenChanged([](CacheDumpContent&) {});
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->kind(), DumpKind::kCache);
  EXPECT_EQ(dump->scale(), 0.5);
  EXPECT_EQ(dump->model_layers(), 30u);
  ASSERT_EQ(dump->cache_layers().size(), 1u);
  const CacheLayer& layer = dump->cache_layers().front();
  EXPECT_EQ(layer.layer, 7u);
  EXPECT_EQ(layer.k.dtype, DType::kF16);
  EXPECT_EQ(layer.v.dtype, DType::kBF16);
  EXPECT_EQ(layer.v.elems(), 6u);
  EXPECT_EQ(layer.q.heads(), 4u);
  EXPECT_TRUE(layer.lse.has_value());
  EXPECT_FALSE(layer.future_q.has_value());
}

TEST(Dump, OptionalTensorsMayBeMissing) {
  const auto dump = OpenChanged([](CacheDumpContent& content) {
    content.tensors.erase("layers.7.o");
    content.tensors.erase("layers.7.lse");
    content.metadata.erase("lse_base");
  });
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_FALSE(dump->cache_layers().front().o.has_value());
}

TEST(Dump, AnOutputProjectionHasAPartPerQueryHead) {
  const auto with = [](std::vector<uint64_t> shape) {
    return [=](CacheDumpContent& content) {
      content.tensors["layers.7.output_projection"] = {"BF16", shape};
    };
  };
  const auto dump = OpenChanged(with({2000, 24}));  // more rows than there may be heads
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_TRUE(dump->cache_layers().front().output_projection.has_value());
  ExpectRefused(with({2000, 23}), "layers.7.output_projection", "[2000, 24]");
  ExpectRefused(with({2000, 4, 6}), "layers.7.output_projection", "2 axes");
  ExpectRefused(with({65537, 24}), "layers.7.output_projection", "65536");
}

TEST(Dump, MomentsOfQueriesComeTogether) {
  const auto with = [](std::vector<uint64_t> mean, std::vector<uint64_t> covariance) {
    return [=](CacheDumpContent& content) {
      if (!mean.empty()) content.tensors["layers.7.query_mean"] = {"F32", mean};
      if (!covariance.empty()) content.tensors["layers.7.query_covariance"] = {"F32", covariance};
    };
  };
  const auto dump = OpenChanged(with({4, 4}, {4, 4, 4}));
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_TRUE(dump->cache_layers().front().query_covariance.has_value());
  ExpectRefused(with({4, 4}, {}), "layers.7.query_covariance", "together");
  ExpectRefused(with({}, {4, 4, 4}), "layers.7.query_mean", "together");
  ExpectRefused(with({4, 5}, {4, 4, 4}), "layers.7.query_mean", "[4, 4]");
  ExpectRefused(with({4, 4}, {4, 4, 5}), "layers.7.query_covariance", "[4, 4, 4]");
}

TEST(Dump, RotaryMetadataIsOptionalAndChecked) {
  const auto with = [](std::map<std::string, std::string> more) {
    return [=](CacheDumpContent& content) {
      for (const auto& [key, value] : more) content.metadata[key] = value;
    };
  };
  EXPECT_FALSE(OpenChanged(with({}))->rope().has_value());
  const auto theta = OpenChanged(with({{"rope_pairing", "half"}, {"rope_theta", "100000"}}));
  ASSERT_TRUE(theta.ok()) << theta.status();
  EXPECT_EQ(std::get<client::ThetaSpeeds>(theta->rope()->speeds).theta, 1e5);
  const auto list =
      OpenChanged(with({{"rope_pairing", "interleaved"}, {"rope_speeds", "[1, 0.25]"}}));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->rope()->rotary_dim, 4u);
  ExpectRefused(with({{"rope_pairing", "both"}}), "metadata rope_pairing", "half or interleaved");
  for (const char* bad : {"", "1", "-3", "nan", "inf", "x"}) {
    ExpectRefused(with({{"rope_pairing", "half"}, {"rope_theta", bad}}), "metadata rope_theta",
                  "above 1");
  }
  for (const char* bad : {"7", "[]", "[\"a\"]", "{}"}) {
    ExpectRefused(with({{"rope_pairing", "half"}, {"rope_speeds", bad}}), "metadata rope_speeds",
                  "JSON list");
  }
}

TEST(Dump, WrongMetadataIsNamed) {
  const auto set = [](const char* key, const char* value) {
    return [=](CacheDumpContent& content) { content.metadata[key] = value; };
  };
  ExpectRefused(set("format", "kvtriage-dump-2"), "metadata format", "kvtriage-dump-1");
  ExpectRefused(set("kind", "other"), "metadata kind", "cache or blend");
  for (const char* scale : {"", "0", "-1", "nan", "inf", "x"})
    ExpectRefused(set("scale", scale), "metadata scale", "");
  ExpectRefused(set("query_stage", "before_rope"), "metadata query_stage", "after_rope");
  ExpectRefused(set("layers", "0"), "metadata layers", "");
  ExpectRefused(set("lse_base", "10"), "metadata lse_base", "e or 2");
  for (const char* list : {"", "7", "[]", "[7,7]", "[30]", "[-1]", "[\"7\"]"}) {
    ExpectRefused(set("dumped_layers", list), "metadata dumped_layers", "");
  }
  ExpectRefused([](CacheDumpContent& content) { content.metadata.erase("lse_base"); },
                "metadata lse_base", "e or 2");
}

TEST(Dump, WrongTensorsAreNamedWithWhatWasExpected) {
  const auto shape = [](const char* name, std::vector<uint64_t> extents) {
    return [=](CacheDumpContent& content) { content.tensors[name].shape = extents; };
  };
  ExpectRefused([](CacheDumpContent& c) { c.tensors.erase("layers.7.k"); }, "layers.7.k",
                "missing");
  ExpectRefused([](CacheDumpContent& c) { c.tensors["layers.7.k"].dtype = "I32"; }, "layers.7.k",
                "F16, BF16 or F32");
  ExpectRefused([](CacheDumpContent& c) { c.tensors.erase("layers.7.o"); }, "layers.7.o",
                "together");
  ExpectRefused(shape("layers.7.k", {2, 40}), "layers.7.k", "3 axes");
  ExpectRefused(shape("layers.7.k", {2, 0, 4}), "layers.7.k", "empty");
  ExpectRefused(shape("layers.7.k", {2, 10, 577}), "layers.7.k", "1..576");
  ExpectRefused(shape("layers.7.v", {2, 9, 6}), "layers.7.v", "[2, 10, 6]");
  ExpectRefused(shape("layers.7.q", {3, 3, 4}), "layers.7.q", "3 query heads");
  ExpectRefused(shape("layers.7.q", {4, 3, 5}), "layers.7.q", "[4, 3, 4]");
  ExpectRefused(shape("layers.7.q", {4, 11, 4}), "layers.7.q", "11 query rows");
  ExpectRefused(shape("layers.7.o", {4, 3, 4}), "layers.7.o", "[4, 3, 6]");
  ExpectRefused(shape("layers.7.lse", {4, 2}), "layers.7.lse", "[4, 3]");
}

TEST(Dump, ABlendDumpNeedsItsOwnTensors) {
  const auto blend = [](CacheDumpContent& content) {
    content.metadata["kind"] = "blend";
    content.tensors = {{"layers.7.fresh_v", {"F16", {2, 10, 4}}},
                       {"layers.7.reused_v", {"F16", {2, 8, 4}}}};
  };
  const auto dump = OpenChanged(blend);
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->blend_layers().front().reused_v.rows(), 8u);
  ExpectRefused(
      [&](CacheDumpContent& content) {
        blend(content);
        content.tensors["layers.7.reused_v"].shape = {2, 11, 4};
      },
      "layers.7.reused_v", "11 rows");
  ExpectRefused(
      [&](CacheDumpContent& content) {
        blend(content);
        content.tensors["layers.7.reused_v"].shape = {1, 8, 4};
      },
      "layers.7.reused_v", "[2, 8, 4]");
}

TEST(Dump, TheCommittedDumpsOpen) {
  const std::string data = std::string(KVTRIAGE_SOURCE_DIR) + "/tests/data/";
  const auto cache = Dump::Open(data + "cache.safetensors");
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ(cache->cache_layers().size(), 4u);
  EXPECT_EQ(cache->cache_layers().back().layer, 29u);
  EXPECT_EQ(cache->cache_layers().front().k.rows(), 827u);
  EXPECT_EQ(cache->cache_layers().front().future_q->rows(), 16u);
  const auto blend = Dump::Open(data + "blend.safetensors");
  ASSERT_TRUE(blend.ok()) << blend.status();
  EXPECT_EQ(blend->blend_layers().size(), 3u);
  EXPECT_EQ(blend->blend_layers().front().reused_v.rows(), 808u);
}

}  // namespace
}  // namespace kvtriage::cli
