#include "client/cpp/policy_proto.h"

#include <utility>

#include "client/cpp/int32_bytes.h"

namespace kvtriage::client {
namespace {

static_assert(static_cast<int>(Reduce::kPre) == v1::Reduce::KIND_PRE);
static_assert(static_cast<int>(Pool::Kind::kMax) == v1::Pool::KIND_MAX);
static_assert(static_cast<int>(Granularity::kPerHead) == v1::GRANULARITY_PER_HEAD);
static_assert(static_cast<int>(Granularity::kPerLayer) == v1::GRANULARITY_PER_LAYER);
static_assert(static_cast<int>(Granularity::kPerSequence) == v1::GRANULARITY_PER_SEQUENCE);

v1::Scorer ToProto(const Scorer& scorer) {
  v1::Scorer out;
  switch (scorer.kind) {
    case Scorer::Kind::kAttention:
      out.mutable_attention();
      break;
    case Scorer::Kind::kObcValue:
      out.mutable_obc()->set_form(v1::Scorer::Obc::FORM_VALUE);
      break;
    case Scorer::Kind::kObcKey:
      out.mutable_obc()->set_form(v1::Scorer::Obc::FORM_KEY);
      break;
    case Scorer::Kind::kObcJoint:
      out.mutable_obc()->set_form(v1::Scorer::Obc::FORM_JOINT);
      break;
    case Scorer::Kind::kDrop:
      out.mutable_drop();
      break;
    case Scorer::Kind::kVatp:
      out.mutable_vatp();
      break;
    case Scorer::Kind::kRecency:
      out.mutable_recency();
      break;
    case Scorer::Kind::kRandom:
      out.mutable_random()->set_random_key(scorer.random_key);
      break;
    case Scorer::Kind::kCritical:
      out.mutable_critical()->set_first_stage(scorer.first_stage);
      out.mutable_critical()->set_epsilon(scorer.epsilon);
      break;
    case Scorer::Kind::kKeyNorm:
      out.mutable_key_norm();
      break;
    case Scorer::Kind::kKeyDiff:
      out.mutable_key_diff();
      break;
    case Scorer::Kind::kLagKv:
      out.mutable_lagkv()->set_lag(scorer.lag);
      break;
    case Scorer::Kind::kExpectedAttention:
      out.mutable_expected_attention()->set_future(scorer.future);
      out.mutable_expected_attention()->set_epsilon(scorer.epsilon);
      break;
  }
  return out;
}

v1::Budget::ExplicitCounts CountsToProto(const std::vector<uint32_t>& counts) {
  v1::Budget::ExplicitCounts out;
  out.set_counts_le(ToBytes(std::vector<int32_t>(counts.begin(), counts.end())));
  return out;
}

std::vector<uint32_t> FromProto(const v1::Budget::ExplicitCounts& counts) {
  const auto list = FromBytes(counts.counts_le());
  if (!list.has_value()) return {};
  return {list->begin(), list->end()};
}

v1::Budget ToProto(const Budget& budget) {
  v1::Budget out;
  if (budget.kept_tokens.has_value()) out.set_kept_tokens(*budget.kept_tokens);
  if (budget.kept_ratio.has_value()) out.set_kept_ratio(*budget.kept_ratio);
  if (budget.uniform_layers) out.mutable_uniform_layers();
  if (budget.pyramid_beta.has_value()) out.mutable_pyramid()->set_beta(*budget.pyramid_beta);
  if (!budget.explicit_layers.empty()) {
    *out.mutable_explicit_layers() = CountsToProto(budget.explicit_layers);
  }
  if (budget.uniform_heads) out.mutable_uniform_heads();
  if (!budget.explicit_heads.empty()) {
    *out.mutable_explicit_heads() = CountsToProto(budget.explicit_heads);
  }
  if (budget.adaptive_alpha.has_value()) out.mutable_adaptive()->set_alpha(*budget.adaptive_alpha);
  return out;
}

std::optional<Scorer> FromProto(const v1::Scorer& scorer) {
  using Kind = Scorer::Kind;
  switch (scorer.kind_case()) {
    case v1::Scorer::kAttention:
      return Scorer{Kind::kAttention};
    case v1::Scorer::kDrop:
      return Scorer{Kind::kDrop};
    case v1::Scorer::kVatp:
      return Scorer{Kind::kVatp};
    case v1::Scorer::kRecency:
      return Scorer{Kind::kRecency};
    case v1::Scorer::kRandom:
      return Scorer{Kind::kRandom, scorer.random().random_key()};
    case v1::Scorer::kCritical:
      return Scorer{.kind = Kind::kCritical,
                    .first_stage = scorer.critical().first_stage(),
                    .epsilon = scorer.critical().epsilon()};
    case v1::Scorer::kKeyNorm:
      return Scorer{Kind::kKeyNorm};
    case v1::Scorer::kKeyDiff:
      return Scorer{Kind::kKeyDiff};
    case v1::Scorer::kLagkv:
      return Scorer{.kind = Kind::kLagKv, .lag = scorer.lagkv().lag()};
    case v1::Scorer::kExpectedAttention:
      return Scorer{.kind = Kind::kExpectedAttention,
                    .epsilon = scorer.expected_attention().epsilon(),
                    .future = scorer.expected_attention().future()};
    case v1::Scorer::kObc:
      break;
    case v1::Scorer::KIND_NOT_SET:
      return std::nullopt;
  }
  switch (scorer.obc().form()) {
    case v1::Scorer::Obc::FORM_VALUE:
      return Scorer{Kind::kObcValue};
    case v1::Scorer::Obc::FORM_KEY:
      return Scorer{Kind::kObcKey};
    case v1::Scorer::Obc::FORM_JOINT:
      return Scorer{Kind::kObcJoint};
    default:
      return std::nullopt;
  }
}

Budget FromProto(const v1::Budget& budget) {
  Budget out;
  if (budget.amount_case() == v1::Budget::kKeptTokens) out.kept_tokens = budget.kept_tokens();
  if (budget.amount_case() == v1::Budget::kKeptRatio) out.kept_ratio = budget.kept_ratio();
  out.uniform_layers = budget.has_uniform_layers();
  if (budget.has_pyramid()) out.pyramid_beta = budget.pyramid().beta();
  if (budget.has_explicit_layers()) out.explicit_layers = FromProto(budget.explicit_layers());
  out.uniform_heads = budget.has_uniform_heads();
  if (budget.has_explicit_heads()) out.explicit_heads = FromProto(budget.explicit_heads());
  if (budget.has_adaptive()) out.adaptive_alpha = budget.adaptive().alpha();
  return out;
}

}  // namespace

v1::Policy ToProto(const Policy& policy) {
  v1::Policy out;
  out.set_name(policy.name);
  const PolicyParts& from = policy.parts;
  v1::PolicyParts to;
  if (from.scorer.has_value()) *to.mutable_scorer() = ToProto(*from.scorer);
  if (from.window.has_value() && from.window->all) to.mutable_window()->mutable_all();
  if (from.window.has_value() && !from.window->all)
    to.mutable_window()->set_last(from.window->last);
  if (from.window.has_value()) to.mutable_window()->set_decay(from.window->decay);
  if (from.reduce.has_value())
    to.mutable_reduce()->set_kind(static_cast<v1::Reduce::Kind>(*from.reduce));
  if (from.pool.has_value()) {
    to.mutable_pool()->set_kind(static_cast<v1::Pool::Kind>(from.pool->kind));
    to.mutable_pool()->set_kernel(from.pool->kernel);
  }
  if (from.protect.has_value()) {
    to.mutable_protect()->set_sinks(from.protect->sinks);
    to.mutable_protect()->set_recent(from.protect->recent);
    to.mutable_protect()->set_recent_share(from.protect->recent_share);
  }
  if (from.budget.has_value()) *to.mutable_budget() = ToProto(*from.budget);
  if (from.granularity.has_value())
    to.set_granularity(static_cast<v1::Granularity>(*from.granularity));
  // A message without parts must stay absent: present but empty would be a hand-made policy.
  if (to.ByteSizeLong() > 0) *out.mutable_parts() = std::move(to);
  return out;
}

PolicyParts FromProto(const v1::PolicyParts& from) {
  PolicyParts out;
  if (from.has_scorer()) out.scorer = FromProto(from.scorer());
  if (from.has_window()) {
    out.window = Window{from.window().has_all(), from.window().last(), from.window().decay()};
  }
  if (from.has_reduce()) out.reduce = static_cast<Reduce>(from.reduce().kind());
  if (from.has_pool()) {
    out.pool = Pool{static_cast<Pool::Kind>(from.pool().kind()), from.pool().kernel()};
  }
  if (from.has_protect()) {
    out.protect =
        Protect{from.protect().sinks(), from.protect().recent(), from.protect().recent_share()};
  }
  if (from.has_budget()) out.budget = FromProto(from.budget());
  if (from.granularity() != v1::GRANULARITY_UNSPECIFIED) {
    out.granularity = static_cast<Granularity>(from.granularity());
  }
  return out;
}

Policy FromProto(const v1::Policy& policy) { return {policy.name(), FromProto(policy.parts())}; }

Policy NamedPolicy(std::string name, double kept_ratio) {
  Policy policy;
  policy.name = std::move(name);
  policy.parts.budget.emplace().kept_ratio = kept_ratio;
  return policy;
}

Policy NamedPolicyTokens(std::string name, uint32_t kept_tokens) {
  Policy policy;
  policy.name = std::move(name);
  policy.parts.budget.emplace().kept_tokens = kept_tokens;
  return policy;
}

}  // namespace kvtriage::client
