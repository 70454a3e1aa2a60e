// Observe and Rewind as messages, answers that do not fit, and what a slot says of each step.
#include "client/cpp/observe_proto.h"

#include "client/cpp/fates.h"
#include "client/cpp/int32_bytes.h"
#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

ObserveStep Step(uint64_t id, uint32_t rows, uint32_t drafts = 0, bool accumulate_only = false) {
  ObserveStep step;
  step.sequence.sequence_id = id;
  step.sequence.logical_len = step.sequence.physical_len = 12;
  step.sequence.kv_revision = 4;
  step.sequence.rows_count = rows;
  step.sequence.table = {5, 6, 7};
  step.sequence.destination = {8, 9};
  step.draft_rows = drafts;
  step.accumulate_only = accumulate_only;
  return step;
}

ObserveRequest Request(std::vector<ObserveStep> steps) {
  ObserveRequest request;
  request.policy = NamedPolicyTokens("h2o", 8);
  request.policy->parts.window = Window{true, 0, 0.5};
  request.steps = std::move(steps);
  request.inputs.source = KeysOnly{};
  request.act = InPlace{};
  return request;
}

TEST(ObserveToProto, CarriesEveryField) {
  ObserveRequest request = Request({Step(7, 3), Step(8, 4, 2)});
  request.steps[0].trigger = 10;
  request.lengths = LengthRule::kOne;
  request.renumber = AngleMode::kExact;
  const v1::ObserveRequest message = ToProto(request, 3, MemoryIds());
  EXPECT_EQ(message.policy().name(), "h2o");
  EXPECT_EQ(message.policy().parts().budget().kept_tokens(), 8u);
  EXPECT_TRUE(message.policy().parts().window().has_all());
  EXPECT_EQ(message.policy().parts().window().decay(), 0.5);
  ASSERT_EQ(message.steps_size(), 2);
  EXPECT_EQ(message.steps(0).sequence().sequence_id(), 7u);
  EXPECT_EQ(message.steps(0).sequence().rows_count(), 3u);
  EXPECT_EQ(message.steps(0).trigger(), 10u);
  EXPECT_EQ(message.steps(1).draft_rows(), 2u);
  EXPECT_TRUE(message.inputs().has_keys_only());
  EXPECT_EQ(message.act().in_place().ledger_slot(), 3u);
  EXPECT_EQ(message.act().renumber().angles(), v1::ANGLE_MODE_EXACT);
  EXPECT_EQ(message.output().lengths(), v1::LENGTH_RULE_ONE);
  EXPECT_TRUE(message.steps(0).sequence().has_destination());
  EXPECT_FALSE(message.steps(1).sequence().has_destination()) << "it is not copied anywhere";
  request.policy.reset();
  EXPECT_FALSE(ToProto(request, 3, MemoryIds()).has_policy());
}

TEST(ObserveToProto, NoActAndNoSlotWhereNothingCanBeEvicted) {
  const ObserveRequest request = Request({Step(7, 3, 0, true), Step(8, 4, 2)});
  EXPECT_FALSE(WritesInPlace(request));
  EXPECT_FALSE(ToProto(request, 3, MemoryIds()).has_act());
  EXPECT_FALSE(ToProto(request, 3, MemoryIds()).has_output());
  EXPECT_TRUE(WritesInPlace(Request({Step(7, 3, 0, true), Step(8, 4)})));
  ObserveRequest advice = Request({Step(8, 4)});
  advice.act = SelectOnly{};
  EXPECT_FALSE(WritesInPlace(advice));
}

v1::ObserveResponse Response() {
  v1::ObserveResponse response;
  response.mutable_header()->set_job_id(9);
  response.mutable_policy()->mutable_scorer()->mutable_attention();
  v1::ObserveResponse::StepResult& cut = *response.add_steps();
  cut.set_sequence_id(7);
  cut.set_evicted(true);
  cut.set_started(true);
  cut.mutable_result()->set_sequence_id(7);
  cut.mutable_result()->set_kept(2);
  cut.mutable_result()->set_kv_revision(5);
  cut.mutable_result()->set_blocks_used(1);
  v1::KeptSets& sets = *cut.mutable_result()->mutable_kept_sets();
  sets.set_granularity(v1::GRANULARITY_PER_LAYER);
  sets.set_lists(1);
  sets.set_counts_le(ToBytes(std::vector<int32_t>{2}));
  sets.set_indices_le(ToBytes(std::vector<int32_t>{3, 11}));
  v1::ObserveResponse::StepResult& grows = *response.add_steps();
  grows.set_sequence_id(8);
  grows.set_draft_rows(2);
  return response;
}

TEST(ObserveFromProto, GivesResultsAndFates) {
  const ObserveRequest request = Request({Step(7, 3), Step(8, 4, 2)});
  const auto result = FromProto(Response(), request, {2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->job_id, 9u);
  ASSERT_TRUE(result->steps[0].evicted.has_value());
  EXPECT_EQ(result->steps[0].evicted->kept_sets.At(0, 1), (std::vector<int32_t>{3, 11}));
  EXPECT_TRUE(result->steps[0].started);
  EXPECT_FALSE(result->steps[1].evicted.has_value());
  EXPECT_EQ(result->steps[1].draft_rows, 2u);
  const auto fates = FatesOfAnswer(*result, request.steps);
  EXPECT_EQ(fates[0].kept, 2u);
  EXPECT_EQ(fates[0].kv_revision, 5u);
  EXPECT_EQ(fates[0].table, (std::vector<int32_t>{5}));
  EXPECT_EQ(fates[1].outcome, Outcome::kApplied);
  EXPECT_EQ(fates[1].kept, 12u) << "longer, and as it stands";
  EXPECT_EQ(fates[1].kv_revision, 4u);
}

TEST(ObserveFromProto, ReadsTheFormatThatWasAskedFor) {
  ObserveRequest request = Request({Step(7, 3), Step(8, 4, 2)});
  request.kept_format = KeptFormat::kBitmap;
  EXPECT_EQ(ToProto(request, 3, MemoryIds()).output().format(), v1::KEPT_FORMAT_BITMAP);
  v1::ObserveResponse response = Response();
  EXPECT_FALSE(FromProto(response, request, {2}).ok());
  response.mutable_steps(0)->mutable_result()->mutable_kept_sets()->set_bitmaps(
      std::string("\x08\x08", 2));
  const auto result = FromProto(response, request, {2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps[0].evicted->kept_sets.At(0, 1), (std::vector<int32_t>{3, 11}));
}

TEST(ObserveFromProto, RefusesAnswersOfOtherSteps) {
  const ObserveRequest request = Request({Step(7, 3), Step(8, 4, 2)});
  v1::ObserveResponse response = Response();
  response.mutable_steps()->RemoveLast();
  EXPECT_FALSE(FromProto(response, request, {2}).ok());
  response = Response();
  response.mutable_steps(1)->set_sequence_id(9);
  EXPECT_FALSE(FromProto(response, request, {2}).ok());
  response = Response();
  response.mutable_steps(0)->mutable_result()->mutable_kept_sets()->set_counts_le(
      ToBytes(std::vector<int32_t>{3}));
  EXPECT_FALSE(FromProto(response, request, {2}).ok());
}

TEST(ObserveFates, UnitsAreOfThoseThatWereCutBack) {
  using wire::LedgerUnit;
  const std::vector<ObserveStep> steps = {Step(7, 3), Step(8, 4, 2), Step(9, 1), Step(10, 1)};
  const SlotReading reading = {SlotState::kSettled,
                               {{7, 0, LedgerUnit::kDone, {2}}, {9, 0, LedgerUnit::kMoving, {2}}}};
  const auto fates = FatesOfSlot(reading, steps, 1, 4);
  EXPECT_EQ(fates[0].outcome, Outcome::kApplied);
  EXPECT_EQ(fates[1].outcome, Outcome::kUnchanged);
  EXPECT_EQ(fates[2].outcome, Outcome::kDamaged);
  EXPECT_EQ(fates[3].outcome, Outcome::kUnchanged) << "it was not over its budget";
  const auto broken = FatesOfSlot({SlotState::kBroken, {}}, steps, 1, 4);
  EXPECT_EQ(broken[0].outcome, Outcome::kDamaged);
  EXPECT_EQ(broken[1].outcome, Outcome::kUnchanged) << "it could not be written";
  const auto untouched = FatesOfSlot({SlotState::kUntouched, {}}, steps, 1, 4);
  EXPECT_EQ(OutcomeOf(untouched), Outcome::kUnchanged);
}

TEST(RewindToProto, CarriesEveryField) {
  const v1::RewindRequest message = ToProto(RewindRequest{7, 2, 5});
  EXPECT_EQ(message.sequence_id(), 7u);
  EXPECT_EQ(message.generation(), 2u);
  EXPECT_EQ(message.rows(), 5u);
}

}  // namespace
}  // namespace kvtriage::client
