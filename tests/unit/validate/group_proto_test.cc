// Groups of ranks as calls name them.
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "service/validate/compress_proto.h"
#include "service/validate/group_proto.h"
#include "service/validate/layers_proto.h"
#include "service/validate/recompute_proto.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

v1::Group ValidGroup() {
  v1::Group group;
  group.set_group_key("0123456789abcdef");
  group.set_rank(1);
  group.set_size(2);
  group.set_first_kv_head(4);
  group.set_total_kv_heads(8);
  return group;
}

TEST(ParseGroup, ReadsWhatIsThere) {
  std::optional<GroupSpec> spec;
  ASSERT_TRUE(ParseGroup(false, {}, spec).ok());
  EXPECT_FALSE(spec.has_value());
  ASSERT_TRUE(ParseGroup(true, ValidGroup(), spec).ok());
  EXPECT_EQ(spec->key[0], '0');
  EXPECT_EQ(spec->key[15], 'f');
  EXPECT_EQ(spec->rank, 1u);
  EXPECT_EQ(spec->size, 2u);
  EXPECT_EQ(spec->first_kv_head, 4u);
  EXPECT_EQ(spec->total_kv_heads, 8u);
}

TEST(ParseGroup, Refusals) {
  const struct {
    const char* name;
    std::function<void(v1::Group&)> change;
    ErrorReason reason;
    const char* field;
  } cases[] = {
      {"no key", [](v1::Group& g) { g.clear_group_key(); }, ErrorReason::kFieldMissing,
       "group.group_key"},
      {"short key", [](v1::Group& g) { g.set_group_key("0123456789abcde"); },
       ErrorReason::kFieldInvalid, "group.group_key"},
      {"no size", [](v1::Group& g) { g.clear_size(); }, ErrorReason::kFieldInvalid, "group.size"},
      {"65 ranks", [](v1::Group& g) { g.set_size(65); }, ErrorReason::kFieldInvalid, "group.size"},
      {"rank of another group", [](v1::Group& g) { g.set_rank(2); }, ErrorReason::kFieldInvalid,
       "group.rank"},
      {"no heads", [](v1::Group& g) { g.clear_total_kv_heads(); }, ErrorReason::kFieldInvalid,
       "group.total_kv_heads"},
      {"more heads than 64 ranks can hold", [](v1::Group& g) { g.set_total_kv_heads(16385); },
       ErrorReason::kFieldInvalid, "group.total_kv_heads"},
      {"head behind the model", [](v1::Group& g) { g.set_first_kv_head(8); },
       ErrorReason::kFieldInvalid, "group.first_kv_head"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    v1::Group group = ValidGroup();
    c.change(group);
    std::optional<GroupSpec> spec;
    const auto info = GetErrorInfo(ParseGroup(true, group, spec));
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->reason, c.reason);
    EXPECT_EQ(info->field, c.field);
    EXPECT_FALSE(spec.has_value());
  }
}

TEST(ParseGroup, CallsHaveOne) {
  v1::CompressRequest compress = ValidCompress();
  EXPECT_FALSE(ParseCompress(compress, Limits(), PolicyDefaults())->group.has_value());
  *compress.mutable_group() = ValidGroup();
  EXPECT_EQ(ParseCompress(compress, Limits(), PolicyDefaults())->group->size, 2u);
  v1::SelectRecomputeRequest blend = ValidSelectRecompute();
  *blend.mutable_group() = ValidGroup();
  EXPECT_EQ(ParseSelectRecompute(blend)->group->rank, 1u);
  blend.mutable_group()->set_rank(9);
  EXPECT_EQ(GetErrorInfo(ParseSelectRecompute(blend).status())->field, "group.rank");
}

// An Observe has no group, so ranks could not go on together.
TEST(ParseGroup, KeepNoState) {
  v1::CompressRequest request = ValidCompress();
  *request.mutable_group() = ValidGroup();
  request.mutable_policy()->set_name("h2o");
  for (v1::SequenceSpec& sequence : *request.mutable_sequences()) {
    sequence.set_rows_count(sequence.physical_len());
  }
  request.set_keep_state(true);
  const auto info = GetErrorInfo(ParseCompress(request, Limits(), PolicyDefaults()).status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kUnsupported);
  EXPECT_EQ(info->field, "keep_state");
}

TEST(ParseGroup, StreamsHaveNone) {
  v1::CompressLayersRequest request;
  *request.mutable_open() = ValidCompress();
  request.mutable_open()->clear_header();
  *request.mutable_open()->mutable_group() = ValidGroup();
  const auto info = GetErrorInfo(ParseLayersOpen(request, Limits(), PolicyDefaults()).status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kUnsupported);
  EXPECT_EQ(info->field, "open.group");
}

}  // namespace
}  // namespace kvtriage
