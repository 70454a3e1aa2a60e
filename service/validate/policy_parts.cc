#include "service/validate/policy_parts.h"

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

// False for NaN.
bool IsShare(double value) { return value >= 0.0 && value <= 1.0; }

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

absl::Status ParseScorer(const v1::PolicyParts& parts, ScoreSpec& score) {
  const v1::Scorer& scorer = parts.scorer();
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

absl::Status ParseWindow(const v1::Window& window, PolicySpec& policy) {
  switch (window.rows_case()) {
    case v1::Window::kLast:
      if (window.last() == 0) return Invalid("window.last", "a window of 0 rows");
      policy.window.last = window.last();
      break;
    case v1::Window::kAll:
      policy.window.all = true;
      break;
    case v1::Window::ROWS_NOT_SET:
      return Missing("window");
  }
  policy.has_window = true;
  return absl::OkStatus();
}

absl::Status ParseReduce(const v1::Reduce& reduce, PolicySpec& policy) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("reduce.kind", reduce.kind(), v1::Reduce::Kind_IsValid));
  switch (reduce.kind()) {
    case v1::Reduce::KIND_MEAN:
      policy.score.reduce = Reduce::kMean;
      break;
    case v1::Reduce::KIND_MAX:
      policy.score.reduce = Reduce::kMax;
      break;
    case v1::Reduce::KIND_PRE:
      policy.score.reduce = Reduce::kPre;
      break;
    default:
      policy.score.reduce = Reduce::kSum;
  }
  policy.has_reduce = true;
  return absl::OkStatus();
}

absl::Status ParsePool(const v1::Pool& pool, PolicySpec& policy) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("pool.kind", pool.kind(), v1::Pool::Kind_IsValid));
  policy.has_pool = true;
  if (pool.kind() == v1::Pool::KIND_NONE) {
    if (pool.kernel() == 0) return absl::OkStatus();
    return Error(ErrorReason::kFieldInvalid, "pool.kernel", "a kernel without pooling")
        .Got(pool.kernel());
  }
  if (pool.kernel() % 2 == 0 || pool.kernel() > kMaxPoolKernel) {
    return Error(ErrorReason::kFieldInvalid, "pool.kernel", "must be odd, 1..255")
        .Got(pool.kernel())
        .Limit(kMaxPoolKernel);
  }
  policy.score.pool = pool.kind() == v1::Pool::KIND_AVG ? Pool::kAvg : Pool::kMax;
  policy.score.pool_kernel = pool.kernel();
  return absl::OkStatus();
}

// Window, reduce and pool: all three where rows of queries vote, none elsewhere.
absl::Status ParseVotingParts(const v1::PolicyParts& parts, PolicySpec& policy) {
  const bool present[] = {parts.has_window(), parts.has_reduce(), parts.has_pool()};
  const char* const fields[] = {"window", "reduce", "pool"};
  const bool wanted = UsesQueries(policy.score.scorer);
  for (size_t i = 0; i < std::size(present); ++i) {
    if (present[i] == wanted) continue;
    if (wanted) return Missing(fields[i]);
    return Error(ErrorReason::kPolicyInvalid, fields[i], "the scorer cannot use this part");
  }
  if (!wanted) return absl::OkStatus();
  KVTRIAGE_RETURN_IF_ERROR(ParseWindow(parts.window(), policy));
  KVTRIAGE_RETURN_IF_ERROR(ParseReduce(parts.reduce(), policy));
  return ParsePool(parts.pool(), policy);
}

absl::Status ParseProtect(const v1::PolicyParts& parts, Protect& protect) {
  if (!parts.has_protect()) return Missing("protect");
  if (!IsShare(parts.protect().recent_share())) {
    return Invalid("protect.recent_share", "outside 0..1");
  }
  protect = {parts.protect().sinks(), parts.protect().recent(), parts.protect().recent_share()};
  return absl::OkStatus();
}

absl::Status ParseAmount(const v1::Budget& budget, Budget& spec) {
  switch (budget.amount_case()) {
    case v1::Budget::kKeptTokens:
      if (budget.kept_tokens() == 0) return Invalid("budget.kept_tokens", "must be at least 1");
      spec.kept_tokens = budget.kept_tokens();
      return absl::OkStatus();
    case v1::Budget::kKeptRatio:
      if (!(budget.kept_ratio() > 0.0 && IsShare(budget.kept_ratio()))) {
        return Invalid("budget.kept_ratio", "must be above 0 and at most 1");
      }
      spec.kept_ratio = budget.kept_ratio();
      return absl::OkStatus();
    case v1::Budget::AMOUNT_NOT_SET:
      break;
  }
  return Missing("budget");
}

absl::Status ParseBudget(const v1::PolicyParts& parts, PolicySpec& policy) {
  const v1::Budget& budget = parts.budget();
  KVTRIAGE_RETURN_IF_ERROR(ParseAmount(budget, policy.budget));
  if (!budget.has_adaptive()) return absl::OkStatus();
  if (!IsShare(budget.adaptive().alpha())) return Invalid("budget.adaptive.alpha", "outside 0..1");
  if (policy.granularity != Granularity::kPerHead) {
    return Error(ErrorReason::kPolicyInvalid, "budget.adaptive",
                 "heads that share one set cannot have budgets of their own");
  }
  policy.budget.adaptive_alpha = budget.adaptive().alpha();
  return absl::OkStatus();
}

absl::Status ParseGranularity(v1::Granularity granularity, PolicySpec& policy) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("granularity", granularity, v1::Granularity_IsValid));
  switch (granularity) {
    case v1::GRANULARITY_PER_LAYER:
      policy.granularity = Granularity::kPerLayer;
      break;
    case v1::GRANULARITY_PER_SEQUENCE:
      policy.granularity = Granularity::kPerSequence;
      break;
    default:
      policy.granularity = Granularity::kPerHead;
  }
  return absl::OkStatus();
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
    case Scorer::kRecency:
      scorer.mutable_recency();
      break;
    case Scorer::kRandom:
      scorer.mutable_random()->set_random_key(score.random_key);
      break;
  }
}

void WriteWindow(const Window& window, v1::Window& out) {
  if (window.all) {
    out.mutable_all();
  } else {
    out.set_last(window.last);
  }
}

v1::Reduce::Kind ReduceKind(Reduce reduce) {
  switch (reduce) {
    case Reduce::kSum:
      return v1::Reduce::KIND_SUM;
    case Reduce::kMean:
      return v1::Reduce::KIND_MEAN;
    case Reduce::kMax:
      return v1::Reduce::KIND_MAX;
    case Reduce::kPre:
      return v1::Reduce::KIND_PRE;
  }
  return v1::Reduce::KIND_UNSPECIFIED;
}

void WritePool(const ScoreSpec& score, v1::Pool& pool) {
  if (score.pool == Pool::kNone) {
    pool.set_kind(v1::Pool::KIND_NONE);
    return;
  }
  pool.set_kind(score.pool == Pool::kAvg ? v1::Pool::KIND_AVG : v1::Pool::KIND_MAX);
  pool.set_kernel(score.pool_kernel);
}

void WriteBudget(const Budget& budget, v1::Budget& out) {
  if (budget.kept_tokens) out.set_kept_tokens(*budget.kept_tokens);
  if (budget.kept_ratio) out.set_kept_ratio(*budget.kept_ratio);
  out.mutable_uniform_layers();
  if (budget.adaptive_alpha) {
    out.mutable_adaptive()->set_alpha(*budget.adaptive_alpha);
  } else {
    out.mutable_uniform_heads();
  }
}

v1::Granularity GranularityOf(Granularity granularity) {
  switch (granularity) {
    case Granularity::kPerHead:
      return v1::GRANULARITY_PER_HEAD;
    case Granularity::kPerLayer:
      return v1::GRANULARITY_PER_LAYER;
    case Granularity::kPerSequence:
      return v1::GRANULARITY_PER_SEQUENCE;
  }
  return v1::GRANULARITY_UNSPECIFIED;
}

}  // namespace

absl::StatusOr<PolicySpec> ParsePolicyParts(const v1::PolicyParts& parts) {
  PolicySpec policy;
  KVTRIAGE_RETURN_IF_ERROR(ParseScorer(parts, policy.score));
  KVTRIAGE_RETURN_IF_ERROR(ParseVotingParts(parts, policy));
  KVTRIAGE_RETURN_IF_ERROR(ParseProtect(parts, policy.protect));
  KVTRIAGE_RETURN_IF_ERROR(ParseGranularity(parts.granularity(), policy));
  KVTRIAGE_RETURN_IF_ERROR(ParseBudget(parts, policy));
  return policy;
}

v1::PolicyParts PolicyPartsOf(const PolicySpec& policy) {
  v1::PolicyParts parts;
  WriteScorer(policy.score, *parts.mutable_scorer());
  if (policy.has_window) WriteWindow(policy.window, *parts.mutable_window());
  if (policy.has_reduce) parts.mutable_reduce()->set_kind(ReduceKind(policy.score.reduce));
  if (policy.has_pool) WritePool(policy.score, *parts.mutable_pool());
  parts.mutable_protect()->set_sinks(policy.protect.sinks);
  parts.mutable_protect()->set_recent(policy.protect.recent);
  parts.mutable_protect()->set_recent_share(policy.protect.recent_share);
  WriteBudget(policy.budget, *parts.mutable_budget());
  parts.set_granularity(GranularityOf(policy.granularity));
  return parts;
}

}  // namespace kvtriage
