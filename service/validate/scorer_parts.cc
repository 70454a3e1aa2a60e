#include "service/validate/scorer_parts.h"

#include <cmath>

#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

absl::StatusOr<Scorer> ParseObc(const v1::Scorer::Obc& obc) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("scorer.obc.form", obc.form(), v1::Scorer::Obc::Form_IsValid));
  switch (obc.form()) {
    case v1::Scorer::Obc::FORM_VALUE:
      return Scorer::kObcValue;
    case v1::Scorer::Obc::FORM_KEY:
      return Scorer::kObcKey;
    default:
      return Scorer::kObcJoint;
  }
}

// The kernels add it in float32, so it must be a number there too.
absl::Status ParseEpsilon(std::string_view field, double epsilon, ScoreSpec& score) {
  const auto narrow = static_cast<float>(epsilon);
  if (!(narrow >= 0.0f && std::isfinite(narrow))) {
    return Invalid(field, "must be finite and not negative");
  }
  score.epsilon = epsilon;
  return absl::OkStatus();
}

absl::Status ParseCritical(const v1::Scorer::Critical& critical, ScoreSpec& score) {
  score.scorer = Scorer::kCritical;
  if (!IsShare(critical.first_stage()))
    return Invalid("scorer.critical.first_stage", "outside 0..1");
  score.first_stage = critical.first_stage();
  return ParseEpsilon("scorer.critical.epsilon", critical.epsilon(), score);
}

absl::Status ParseExpected(const v1::Scorer::ExpectedAttention& expected, ScoreSpec& score) {
  score.scorer = Scorer::kExpectedAttention;
  score.future = expected.future();
  KVTRIAGE_RETURN_IF_ERROR(
      CheckRange("scorer.expected_attention.future", score.future, kMaxFuture));
  return ParseEpsilon("scorer.expected_attention.epsilon", expected.epsilon(), score);
}

}  // namespace

absl::Status ParseScorer(const v1::Scorer& scorer, ScoreSpec& score) {
  switch (scorer.kind_case()) {
    case v1::Scorer::kAttention:
      score.scorer = Scorer::kAttention;
      return absl::OkStatus();
    case v1::Scorer::kObc: {
      KVTRIAGE_ASSIGN_OR_RETURN(score.scorer, ParseObc(scorer.obc()));
      return absl::OkStatus();
    }
    case v1::Scorer::kDrop:
      score.scorer = Scorer::kDrop;
      return absl::OkStatus();
    case v1::Scorer::kVatp:
      score.scorer = Scorer::kVatp;
      return absl::OkStatus();
    case v1::Scorer::kCritical:
      return ParseCritical(scorer.critical(), score);
    case v1::Scorer::kKeyNorm:
      score.scorer = Scorer::kKeyNorm;
      return absl::OkStatus();
    case v1::Scorer::kKeyDiff:
      score.scorer = Scorer::kKeyDiff;
      return absl::OkStatus();
    case v1::Scorer::kLagkv:
      score.scorer = Scorer::kLagKv;
      score.lag = scorer.lagkv().lag();
      return CheckRange("scorer.lagkv.lag", score.lag, kMaxLag);
    case v1::Scorer::kExpectedAttention:
      return ParseExpected(scorer.expected_attention(), score);
    case v1::Scorer::kRecency:
      score.scorer = Scorer::kRecency;
      return absl::OkStatus();
    case v1::Scorer::kRandom:
      score.scorer = Scorer::kRandom;
      score.random_key = scorer.random().random_key();
      return absl::OkStatus();
    case v1::Scorer::KIND_NOT_SET:
      break;
  }
  return Missing("scorer");
}

void WriteScorer(const ScoreSpec& score, v1::Scorer& scorer) {
  switch (score.scorer) {
    case Scorer::kAttention:
      scorer.mutable_attention();
      break;
    case Scorer::kObcValue:
      scorer.mutable_obc()->set_form(v1::Scorer::Obc::FORM_VALUE);
      break;
    case Scorer::kObcKey:
      scorer.mutable_obc()->set_form(v1::Scorer::Obc::FORM_KEY);
      break;
    case Scorer::kObcJoint:
      scorer.mutable_obc()->set_form(v1::Scorer::Obc::FORM_JOINT);
      break;
    case Scorer::kDrop:
      scorer.mutable_drop();
      break;
    case Scorer::kVatp:
      scorer.mutable_vatp();
      break;
    case Scorer::kCritical:
      scorer.mutable_critical()->set_first_stage(score.first_stage);
      scorer.mutable_critical()->set_epsilon(score.epsilon);
      break;
    case Scorer::kKeyNorm:
      scorer.mutable_key_norm();
      break;
    case Scorer::kKeyDiff:
      scorer.mutable_key_diff();
      break;
    case Scorer::kLagKv:
      scorer.mutable_lagkv()->set_lag(score.lag);
      break;
    case Scorer::kExpectedAttention:
      scorer.mutable_expected_attention()->set_future(score.future);
      scorer.mutable_expected_attention()->set_epsilon(score.epsilon);
      break;
    case Scorer::kRecency:
      scorer.mutable_recency();
      break;
    case Scorer::kRandom:
      scorer.mutable_random()->set_random_key(score.random_key);
      break;
  }
}

}  // namespace kvtriage
