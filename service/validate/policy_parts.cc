#include "service/validate/policy_parts.h"

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/budget_parts.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"
#include "service/validate/scorer_parts.h"

namespace kvtriage {
namespace {

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
  if (window.decay() == 0) return absl::OkStatus();
  // The sums are multiplied in float32, so it must be above 0 there too.
  if (!(static_cast<float>(window.decay()) > 0.0f && IsShare(window.decay()))) {
    return Invalid("window.decay", "outside 0..1");
  }
  policy.window.decay = window.decay();
  if (policy.window.all || policy.window.decay == 1) return absl::OkStatus();
  return Error(ErrorReason::kPolicyInvalid, "window.decay",
               "a window of the newest rows keeps no running sum");
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

// Window, reduce and pool: each where the scorer can use it, and nowhere else.
absl::Status ParseVotingParts(const v1::PolicyParts& parts, PolicySpec& policy) {
  const bool present[] = {parts.has_window(), parts.has_reduce(), parts.has_pool()};
  const char* const fields[] = {"window", "reduce", "pool"};
  const bool votes = UsesQueries(policy.score.scorer);
  const bool wanted[] = {votes, UsesReduce(policy.score.scorer), votes};
  for (size_t i = 0; i < std::size(present); ++i) {
    if (present[i] == wanted[i]) continue;
    if (wanted[i]) return Missing(fields[i]);
    return Error(ErrorReason::kPolicyInvalid, fields[i], "the scorer cannot use this part");
  }
  if (wanted[0]) KVTRIAGE_RETURN_IF_ERROR(ParseWindow(parts.window(), policy));
  if (wanted[1]) KVTRIAGE_RETURN_IF_ERROR(ParseReduce(parts.reduce(), policy));
  return wanted[2] ? ParsePool(parts.pool(), policy) : absl::OkStatus();
}

absl::Status ParseProtect(const v1::PolicyParts& parts, Protect& protect) {
  if (!parts.has_protect()) return Missing("protect");
  if (!IsShare(parts.protect().recent_share())) {
    return Invalid("protect.recent_share", "outside 0..1");
  }
  protect = {parts.protect().sinks(), parts.protect().recent(), parts.protect().recent_share()};
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

void WriteWindow(const Window& window, v1::Window& out) {
  if (window.all) {
    out.mutable_all();
  } else {
    out.set_last(window.last);
  }
  if (window.decay != 1) out.set_decay(window.decay);
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

// What the scorer prescribes.
absl::Status CheckScorer(const PolicySpec& policy) {
  const Scorer scorer = policy.score.scorer;
  if (scorer != Scorer::kCritical && scorer != Scorer::kExpectedAttention) return absl::OkStatus();
  if (policy.score.reduce != Reduce::kMean) {
    return Error(ErrorReason::kPolicyInvalid, "reduce", "this scorer averages over the group");
  }
  if (scorer != Scorer::kCritical || policy.granularity == Granularity::kPerHead)
    return absl::OkStatus();
  return Error(ErrorReason::kPolicyInvalid, "granularity",
               "the scorer's two stages need one set per head");
}

}  // namespace

absl::StatusOr<PolicySpec> ParsePolicyParts(const v1::PolicyParts& parts) {
  PolicySpec policy;
  KVTRIAGE_RETURN_IF_ERROR(ParseScorer(parts.scorer(), policy.score));
  KVTRIAGE_RETURN_IF_ERROR(ParseVotingParts(parts, policy));
  KVTRIAGE_RETURN_IF_ERROR(ParseProtect(parts, policy.protect));
  KVTRIAGE_RETURN_IF_ERROR(ParseGranularity(parts.granularity(), policy));
  KVTRIAGE_RETURN_IF_ERROR(CheckScorer(policy));
  KVTRIAGE_RETURN_IF_ERROR(ParseBudget(parts.budget(), policy));
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
