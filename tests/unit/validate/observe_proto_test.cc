// What Observe and Rewind make of their messages, and what each malformed one gets.
#include "service/validate/observe_proto.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gtest/gtest.h"
#include "service/validate/compress_proto.h"
#include "service/validate/rewind_proto.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

using Request = v1::ObserveRequest;
using Reason = ErrorReason;
const double kNan = std::numeric_limits<double>::quiet_NaN();

absl::StatusOr<ObserveSpec> Parse(const Request& request) {
  return ParseObserve(request, Limits(), {});
}

// "reason field" of a refusal, "ok" otherwise.
template <typename Spec>
std::string Said(const absl::StatusOr<Spec>& spec) {
  if (spec.ok()) return "ok";
  const auto info = GetErrorInfo(spec.status());
  return std::string(ReasonName(info->reason)) + " " + info->field;
}

TEST(ParseObserve, ReadsEveryField) {
  const auto spec = Parse(ValidObserve());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->header.key[0], '0');
  EXPECT_EQ(spec->cache_id, ValidCompress().cache_id());
  ASSERT_TRUE(spec->policy.has_value());
  EXPECT_EQ(spec->policy->name, "h2o");
  EXPECT_EQ(spec->policy->budget.kept_tokens, 8u);
  ASSERT_EQ(spec->sequences.size(), 2u);
  EXPECT_EQ(spec->sequences[1].sequence_id, 12u);
  EXPECT_EQ(spec->sequences[0].rows_count, 4u);
  EXPECT_EQ(spec->steps[0].trigger, 12u);
  EXPECT_TRUE(spec->steps[0].may_evict());
  EXPECT_EQ(spec->steps[1].draft_rows, 1u);
  EXPECT_FALSE(spec->steps[1].may_evict());
  EXPECT_EQ(spec->act.kind, ActKind::kInPlace);
  EXPECT_EQ(spec->inputs.source, AttentionSource::kQuery);
}

TEST(ParseObserve, EverySourceIsRead) {
  for (const auto source :
       {v1::ScoreInputs::kKeysOnly, v1::ScoreInputs::kQuery, v1::ScoreInputs::kQueryOutput,
        v1::ScoreInputs::kAttention, v1::ScoreInputs::kColumnSums}) {
    EXPECT_EQ(Said(Parse(ValidObserve(source))), "ok") << source;
  }
}

TEST(ParseObserve, PolicyMayBeAbsent) {
  Request request = ValidObserve();
  request.clear_policy();
  const auto spec = Parse(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->policy.has_value());
}

TEST(ParseObserve, ActMayBeAbsentWhereNothingCanBeEvicted) {
  Request request = ValidObserve();
  request.clear_act();
  request.clear_output();
  EXPECT_EQ(Said(Parse(request)), "field_missing act");
  request.mutable_steps(0)->set_accumulate_only(true);
  const auto spec = Parse(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->act.kind, ActKind::kSelectOnly);
  for (int i = 0; i < 2; ++i) {
    request.mutable_steps(i)->mutable_sequence()->clear_sharing();
  }
  EXPECT_EQ(Said(Parse(request)), "ok") << "nothing is written";
  *request.mutable_act() = ValidObserve().act();
  EXPECT_EQ(Said(Parse(request)), "ok");
  request.mutable_act()->mutable_in_place()->set_ledger_slot(99);
  EXPECT_EQ(Said(Parse(request)), "field_invalid act.in_place.ledger_slot");
}

TEST(ParseObserve, ResolveNeedsOnlyItsHeader) {
  Request request;
  request.mutable_header()->set_idempotency_key(std::string(16, 'k'));
  request.mutable_header()->set_resolve(true);
  const auto spec = Parse(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->header.resolve);
}

TEST(ParseObserve, DecayIsOneWhenAbsentAndComesBackInThePolicy) {
  Request request = ValidObserve();
  EXPECT_EQ(Parse(request)->policy->window.decay, 1);
  v1::Window& window = *request.mutable_policy()->mutable_parts()->mutable_window();
  window.mutable_all();
  window.set_decay(0.5);
  const auto spec = Parse(request);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->policy->window.decay, 0.5);
}

struct Row {
  const char* name;
  std::function<void(Request&)> change;
  Reason reason;
  const char* field;
};

v1::SequenceSpec& Seq(Request& r, int i = 0) { return *r.mutable_steps(i)->mutable_sequence(); }
v1::PolicyParts& Parts(Request& r) { return *r.mutable_policy()->mutable_parts(); }

TEST(ParseObserve, RefusalsNameReasonAndField) {
  const Row kRows[] = {
      {"no header", [](Request& r) { r.clear_header(); }, Reason::kFieldMissing, "header"},
      {"no key", [](Request& r) { r.mutable_header()->clear_idempotency_key(); },
       Reason::kFieldMissing, "header.idempotency_key"},
      {"no cache", [](Request& r) { r.set_cache_id(0); }, Reason::kFieldMissing, "cache_id"},
      {"no steps", [](Request& r) { r.clear_steps(); }, Reason::kFieldMissing, "steps"},
      {"too many steps",
       [](Request& r) {
         while (r.steps_size() <= 256) *r.add_steps() = r.steps(1);
       },
       Reason::kTooMany, "steps"},
      {"sequence twice", [](Request& r) { Seq(r, 1).set_sequence_id(11); }, Reason::kFieldInvalid,
       "steps[1].sequence.sequence_id"},
      {"no sequence", [](Request& r) { r.mutable_steps(1)->clear_sequence(); },
       Reason::kFieldInvalid, "steps[1].sequence.sequence_id"},
      {"lengths disagree", [](Request& r) { Seq(r).set_total_dropped(4); }, Reason::kSequenceStale,
       "steps[0].sequence.physical_len"},
      {"row limits",
       [](Request& r) {
         Seq(r).mutable_row_limits()->set_inline_le(Int32Bytes({17, 18, 19, 20}));
       },
       Reason::kFieldInvalid, "steps[0].sequence.row_limits"},
      {"more rows than the inputs", [](Request& r) { Seq(r).set_rows_count(8); },
       Reason::kFieldInvalid, "steps[0].sequence.rows_count"},
      {"more rows than cached ones",
       [](Request& r) {
         Seq(r, 1).set_rows_begin(0);
         Seq(r, 1).set_rows_count(4);
       },
       Reason::kFieldInvalid, "steps[1].sequence.rows_count"},
      {"too many drafts", [](Request& r) { r.mutable_steps(1)->set_draft_rows(65); },
       Reason::kTooMany, "steps[1].draft_rows"},
      {"trigger below the budget", [](Request& r) { r.mutable_steps(0)->set_trigger(7); },
       Reason::kFieldInvalid, "steps[0].trigger"},
      {"ratio", [](Request& r) { Parts(r).mutable_budget()->set_kept_ratio(0.5); },
       Reason::kPolicyInvalid, "policy.parts.budget"},
      {"name alone", [](Request& r) { r.mutable_policy()->clear_parts(); }, Reason::kPolicyInvalid,
       "policy.parts.budget"},
      {"counts",
       [](Request& r) {
         Parts(r).mutable_budget()->clear_amount();
         Parts(r).mutable_budget()->mutable_explicit_layers()->set_counts_le(Int32Bytes({8, 8}));
       },
       Reason::kPolicyInvalid, "policy.parts.budget"},
      {"adaptive",
       [](Request& r) { Parts(r).mutable_budget()->mutable_adaptive()->set_alpha(0.2); },
       Reason::kLengthsUnequal, "policy.parts.budget"},
      {"pyramid", [](Request& r) { Parts(r).mutable_budget()->mutable_pyramid()->set_beta(20); },
       Reason::kLengthsUnequal, "policy.parts.budget"},
      {"unknown policy", [](Request& r) { r.mutable_policy()->set_name("h20"); },
       Reason::kPolicyUnknown, "policy.name"},
      {"a mean that does not add up",
       [](Request& r) {
         r.mutable_policy()->set_name("criticalkv");
         Parts(r).mutable_window()->mutable_all();
       },
       Reason::kPolicyInvalid, "policy.parts.window"},
      {"decay above 1",
       [](Request& r) {
         Parts(r).mutable_window()->mutable_all();
         Parts(r).mutable_window()->set_decay(1.5);
       },
       Reason::kFieldInvalid, "policy.parts.window.decay"},
      {"decay below 0",
       [](Request& r) {
         Parts(r).mutable_window()->mutable_all();
         Parts(r).mutable_window()->set_decay(-0.5);
       },
       Reason::kFieldInvalid, "policy.parts.window.decay"},
      {"decay that is 0 in float32",
       [](Request& r) {
         Parts(r).mutable_window()->mutable_all();
         Parts(r).mutable_window()->set_decay(1e-60);
       },
       Reason::kFieldInvalid, "policy.parts.window.decay"},
      {"decay NaN",
       [](Request& r) {
         Parts(r).mutable_window()->mutable_all();
         Parts(r).mutable_window()->set_decay(kNan);
       },
       Reason::kFieldInvalid, "policy.parts.window.decay"},
      {"decay of a window",
       [](Request& r) {
         Parts(r).mutable_window()->set_last(4);
         Parts(r).mutable_window()->set_decay(0.5);
       },
       Reason::kPolicyInvalid, "policy.parts.window.decay"},
      {"no act", [](Request& r) { r.clear_act(); }, Reason::kFieldMissing, "act"},
      {"no output", [](Request& r) { r.clear_output(); }, Reason::kFieldMissing, "output"},
      {"no sharing", [](Request& r) { Seq(r).clear_sharing(); }, Reason::kEnumUnspecified,
       "steps[0].sequence.sharing"},
      {"renumber without positions",
       [](Request& r) {
         r.mutable_act()->mutable_renumber()->set_angles(v1::ANGLE_MODE_EXACT);
         Seq(r).clear_positions();
       },
       Reason::kFieldMissing, "steps[0].sequence.positions"},
      {"no source", [](Request& r) { r.mutable_inputs()->clear_source(); }, Reason::kFieldMissing,
       "inputs.source"},
      {"no scale", [](Request& r) { r.mutable_inputs()->set_softmax_scale(0); },
       Reason::kFieldInvalid, "inputs.softmax_scale"},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    Request request = ValidObserve();
    row.change(request);
    const absl::Status status = Parse(request).status();
    const auto info = GetErrorInfo(status);
    ASSERT_TRUE(info.has_value()) << status;
    ExpectRefusal(status, CodeOf(row.reason), row.reason, row.field);
  }
}

TEST(ParseRewind, ReadsEveryFieldAndRefusesNothingToForget) {
  const auto spec = ParseRewind(ValidRewind());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sequence_id, 11u);
  EXPECT_EQ(spec->generation, 1u);
  EXPECT_EQ(spec->rows, 3u);
  v1::RewindRequest request = ValidRewind();
  request.set_rows(0);
  EXPECT_EQ(Said(ParseRewind(request)), "field_invalid rows");
  request = ValidRewind();
  request.set_sequence_id(0);
  EXPECT_EQ(Said(ParseRewind(request)), "field_invalid sequence_id");
  request = ValidRewind();
  request.clear_header();
  EXPECT_EQ(Said(ParseRewind(request)), "field_missing header");
  request = ValidRewind();
  request.mutable_header()->set_resolve(true);
  request.set_rows(0);
  EXPECT_EQ(Said(ParseRewind(request)), "ok") << "the body of a question is ignored";
}

// Compress with `keep_state` fills the sums where Observe goes on.
TEST(ParseCompress, KeepStateNeedsASumOfAllRows) {
  const auto said = [](const std::function<void(v1::CompressRequest&)>& change) {
    v1::CompressRequest request = ValidCompress();
    request.mutable_policy()->set_name("h2o");
    for (v1::SequenceSpec& sequence : *request.mutable_sequences()) {
      sequence.set_rows_begin(0);
      sequence.set_rows_count(static_cast<uint32_t>(sequence.physical_len()));
    }
    *request.mutable_inputs()->mutable_query()->mutable_q() = PackedTensor(2, 20, 8, 64);
    request.set_keep_state(true);
    change(request);
    return Said(ParseCompress(request, Limits(), {}));
  };
  EXPECT_EQ(said([](auto&) {}), "ok");
  EXPECT_EQ(said([](auto& r) { r.mutable_policy()->set_name("snapkv"); }),
            "policy_invalid keep_state");
  EXPECT_EQ(said([](auto& r) { r.mutable_policy()->set_name("streaming"); }),
            "policy_invalid keep_state");
  EXPECT_EQ(said([](auto& r) {
              r.mutable_policy()->mutable_parts()->mutable_reduce()->set_kind(v1::Reduce::KIND_MAX);
            }),
            "policy_invalid keep_state");
  EXPECT_EQ(
      said([](auto& r) {
        r.mutable_policy()->mutable_parts()->mutable_budget()->mutable_adaptive()->set_alpha(0.5);
      }),
      "lengths_unequal keep_state");
  EXPECT_EQ(said([](auto& r) {
              r.mutable_policy()->mutable_parts()->mutable_window()->mutable_all();
              r.mutable_policy()->mutable_parts()->mutable_window()->set_decay(0.5);
            }),
            "policy_invalid policy.parts.window.decay");
}

}  // namespace
}  // namespace kvtriage
