// Rerotate, Fuse and the renumbering of a Compress: what is accepted, and what each malformed one
// gets.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/validate/compress_proto.h"
#include "service/validate/fuse_proto.h"
#include "service/validate/rerotate_proto.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using Reason = ErrorReason;
using ::testing::ElementsAre;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;

template <typename Request>
struct Row {
  const char* name;
  std::function<void(Request&)> change;
  absl::StatusCode code;
  Reason reason;
  const char* field;
};

void ExpectRows(const std::vector<Row<v1::RerotateRequest>>& rows) {
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    v1::RerotateRequest request = ValidRerotate();
    row.change(request);
    ExpectRefusal(ParseRerotate(request, Limits()).status(), row.code, row.reason, row.field);
  }
}

void ExpectRows(const std::vector<Row<v1::FuseRequest>>& rows) {
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    v1::FuseRequest request = ValidFuse();
    row.change(request);
    ExpectRefusal(ParseFuse(request, Limits()).status(), row.code, row.reason, row.field);
  }
}

TEST(ParseRerotate, GivesThePlainValues) {
  const auto spec = ParseRerotate(ValidRerotate(), Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->layers, ElementsAre(0, 1));
  EXPECT_EQ(spec->sequence.sequence_id, 11u);
  EXPECT_EQ(spec->sequence.positions->first, 5u);
  EXPECT_EQ(spec->first_row, 3u);
  EXPECT_EQ(spec->rows, 5u);
  EXPECT_THAT(spec->new_positions.list, ElementsAre(40, 41, 42, 43, 44));
  EXPECT_EQ(spec->angles, AngleMode::kExact);
  EXPECT_EQ(spec->act.kind, ActKind::kInPlace);
  EXPECT_EQ(spec->act.ledger_slot, 1u);
}

TEST(ParseRerotate, TakesACopyAndAnEmptySequence) {
  v1::RerotateRequest request = ValidRerotate();
  request.mutable_act()->mutable_copy_to()->set_cache_id(9);
  request.mutable_sequence()->mutable_destination()->set_inline_le(Int32Bytes({7}));
  EXPECT_TRUE(ParseRerotate(request, Limits()).ok());
  request = ValidRerotate();
  request.mutable_sequence()->set_physical_len(0);
  request.mutable_sequence()->set_logical_len(5);
  request.mutable_sequence()->clear_positions();
  request.set_first_row(0);
  request.set_rows(0);
  request.mutable_new_positions()->set_first_position(0);
  EXPECT_TRUE(ParseRerotate(request, Limits()).ok());
}

TEST(RerotateRefusals, NameTheField) {
  using Request = v1::RerotateRequest;
  ExpectRows({
      {"no header", [](Request& r) { r.clear_header(); }, kInvalid, Reason::kFieldMissing,
       "header"},
      {"no cache", [](Request& r) { r.clear_cache_id(); }, kInvalid, Reason::kFieldMissing,
       "cache_id"},
      {"layers unsorted",
       [](Request& r) {
         r.set_layers_le(Int32Bytes({1, 0}));
       },
       kInvalid, Reason::kIndexInvalid, "layers_le"},
      {"no act", [](Request& r) { r.clear_act(); }, kInvalid, Reason::kFieldMissing, "act"},
      {"select only", [](Request& r) { r.mutable_act()->mutable_select_only(); }, kInvalid,
       Reason::kFieldInvalid, "act"},
      {"renumber",
       [](Request& r) { r.mutable_act()->mutable_renumber()->set_angles(v1::ANGLE_MODE_EXACT); },
       kInvalid, Reason::kFieldInvalid, "act.renumber"},
      {"no angles", [](Request& r) { r.clear_angles(); }, kInvalid, Reason::kEnumUnspecified,
       "angles"},
      {"unknown angles", [](Request& r) { r.set_angles(static_cast<v1::AngleMode>(3)); }, kInvalid,
       Reason::kEnumUnspecified, "angles"},
      {"slot past the ledger",
       [](Request& r) { r.mutable_act()->mutable_in_place()->set_ledger_slot(4); }, kInvalid,
       Reason::kFieldInvalid, "act.in_place.ledger_slot"},
      {"no sequence", [](Request& r) { r.clear_sequence(); }, kInvalid, Reason::kFieldInvalid,
       "sequence.sequence_id"},
      {"no sharing", [](Request& r) { r.mutable_sequence()->clear_sharing(); }, kInvalid,
       Reason::kEnumUnspecified, "sequence.sharing"},
      {"no old positions", [](Request& r) { r.mutable_sequence()->clear_positions(); }, kInvalid,
       Reason::kFieldMissing, "sequence.positions"},
      {"no new positions", [](Request& r) { r.clear_new_positions(); }, kInvalid,
       Reason::kFieldMissing, "new_positions"},
      {"a new position missing", [](Request& r) { r.set_rows(6); }, kInvalid, Reason::kFieldInvalid,
       "new_positions.list"},
      {"rows past the end", [](Request& r) { r.set_first_row(16); }, kOutOfRange,
       Reason::kIndexOutOfRange, "rows"},
      {"rows wrap", [](Request& r) { r.set_first_row(0xFFFFFFFF); }, kOutOfRange,
       Reason::kIndexOutOfRange, "rows"},
  });
}

TEST(ParseFuse, GivesThePlainValues) {
  const auto spec = ParseFuse(ValidFuse(), Limits());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->layers.empty());
  EXPECT_FALSE(spec->full);
  EXPECT_THAT(spec->rows, ElementsAre(2, 19));
  EXPECT_EQ(spec->keys->rows, 2u);
  EXPECT_EQ(spec->values->layers, 2u);
  EXPECT_EQ(spec->ledger_slot, 1u);
}

TEST(ParseFuse, TakesAllRowsOrNone) {
  v1::FuseRequest request = ValidFuse();
  request.set_write_back(v1::FuseRequest::WRITE_BACK_FULL);
  request.clear_rows_le();
  *request.mutable_keys() = PackedTensor(2, 20, 2, 64);
  *request.mutable_values() = PackedTensor(2, 20, 2, 64);
  EXPECT_TRUE(ParseFuse(request, Limits())->full);
  request = ValidFuse();
  request.clear_rows_le();
  request.clear_keys();
  request.clear_values();
  EXPECT_TRUE(ParseFuse(request, Limits())->rows.empty());
}

TEST(FuseRefusals, NameTheField) {
  using Request = v1::FuseRequest;
  ExpectRows({
      {"no cache", [](Request& r) { r.clear_cache_id(); }, kInvalid, Reason::kFieldMissing,
       "cache_id"},
      {"no slot", [](Request& r) { r.clear_in_place(); }, kInvalid, Reason::kFieldMissing,
       "in_place"},
      {"slot past the ledger", [](Request& r) { r.mutable_in_place()->set_ledger_slot(4); },
       kInvalid, Reason::kFieldInvalid, "in_place.ledger_slot"},
      {"no mode", [](Request& r) { r.clear_write_back(); }, kInvalid, Reason::kEnumUnspecified,
       "write_back"},
      {"rows beside all", [](Request& r) { r.set_write_back(v1::FuseRequest::WRITE_BACK_FULL); },
       kInvalid, Reason::kFieldInvalid, "rows_le"},
      {"rows repeated",
       [](Request& r) {
         r.set_rows_le(Int32Bytes({2, 2}));
       },
       kInvalid, Reason::kIndexInvalid, "rows_le"},
      {"rows unsorted",
       [](Request& r) {
         r.set_rows_le(Int32Bytes({9, 2}));
       },
       kInvalid, Reason::kIndexInvalid, "rows_le"},
      {"row outside",
       [](Request& r) {
         r.set_rows_le(Int32Bytes({2, 20}));
       },
       kOutOfRange, Reason::kIndexOutOfRange, "rows_le"},
      {"negative row",
       [](Request& r) {
         r.set_rows_le(Int32Bytes({-1, 2}));
       },
       kOutOfRange, Reason::kIndexOutOfRange, "rows_le"},
      {"no keys", [](Request& r) { r.clear_keys(); }, kInvalid, Reason::kFieldMissing, "keys"},
      {"a key missing",
       [](Request& r) {
         r.set_rows_le(Int32Bytes({2, 5, 19}));
       },
       kInvalid, Reason::kFieldInvalid, "keys.rows"},
      {"a value missing", [](Request& r) { *r.mutable_values() = PackedTensor(2, 1, 2, 64); },
       kInvalid, Reason::kFieldInvalid, "values.rows"},
      {"no sharing", [](Request& r) { r.mutable_sequence()->clear_sharing(); }, kInvalid,
       Reason::kEnumUnspecified, "sequence.sharing"},
  });
}

TEST(ParseCompressAct, Renumber) {
  v1::CompressRequest request = ValidCompress();
  request.mutable_act()->mutable_renumber()->set_angles(v1::ANGLE_MODE_FP32_TABLE);
  const auto parse = [&] { return ParseCompress(request, Limits(), PolicyDefaults()); };
  EXPECT_EQ(parse()->act.renumber, AngleMode::kFp32Table);
  request.mutable_act()->mutable_renumber()->clear_angles();
  ExpectRefusal(parse().status(), kInvalid, Reason::kEnumUnspecified, "act.renumber.angles");
  request.mutable_act()->mutable_renumber()->set_angles(v1::ANGLE_MODE_EXACT);
  request.mutable_sequences(1)->clear_positions();
  ExpectRefusal(parse().status(), kInvalid, Reason::kFieldMissing, "sequences[1].positions");
  request = ValidCompress();
  request.mutable_act()->mutable_renumber()->set_angles(v1::ANGLE_MODE_EXACT);
  request.mutable_policy()->set_name("adakv");
  ExpectRefusal(parse().status(), kInvalid, Reason::kLengthsUnequal, "act.renumber");
  request.mutable_policy()->set_name("snapkv");
  request.mutable_act()->mutable_select_only();
  ExpectRefusal(parse().status(), kInvalid, Reason::kFieldInvalid, "act.renumber");
}

TEST(Resolve, IgnoresTheBody) {
  v1::RerotateRequest rerotate;
  *rerotate.mutable_header() = ValidRerotate().header();
  rerotate.mutable_header()->set_resolve(true);
  EXPECT_TRUE(ParseRerotate(rerotate, Limits()).ok());
  v1::FuseRequest fuse;
  *fuse.mutable_header() = rerotate.header();
  EXPECT_TRUE(ParseFuse(fuse, Limits()).ok());
}

}  // namespace
}  // namespace kvtriage
