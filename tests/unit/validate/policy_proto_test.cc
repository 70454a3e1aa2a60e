#include "service/validate/policy_proto.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "service/validate/policy_parts.h"
#include "tests/unit/validate/refusal.h"
#include "tests/unit/validate/valid_messages.h"

namespace kvtriage {
namespace {

constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;

v1::Policy Named(const std::string& name) {
  v1::Policy policy;
  policy.set_name(name);
  return policy;
}

v1::Policy HandMade() {
  v1::Policy policy;
  v1::PolicyParts& parts = *policy.mutable_parts();
  parts.mutable_scorer()->mutable_attention();
  parts.mutable_window()->set_last(8);
  parts.mutable_reduce()->set_kind(v1::Reduce::KIND_PRE);
  parts.mutable_pool()->set_kind(v1::Pool::KIND_MAX);
  parts.mutable_pool()->set_kernel(7);
  parts.mutable_protect()->set_sinks(2);
  parts.mutable_budget()->set_kept_tokens(16);
  parts.set_granularity(v1::GRANULARITY_PER_HEAD);
  return policy;
}

PolicySpec Parsed(const v1::Policy& policy, const PolicyDefaults& defaults = {}) {
  auto spec = ParsePolicy(policy, defaults);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : PolicySpec{};
}

std::string Bytes(const v1::PolicyParts& parts) { return parts.SerializeAsString(); }

TEST(ParsePolicy, ANameTakesTheOperatorsRatio) {
  EXPECT_EQ(Parsed(Named("snapkv")).budget, (Budget{.kept_ratio = 0.5}));
  EXPECT_EQ(Parsed(Named("snapkv"), {.kept_ratio = 0.25}).budget, (Budget{.kept_ratio = 0.25}));
  EXPECT_EQ(Parsed(Named("adakv")).budget, (Budget{.kept_ratio = 0.5, .adaptive_alpha = 0.2}));
  EXPECT_EQ(Parsed(Named("snapkv")).name, "snapkv");
}

v1::Policy WithCounts(const std::string& name, bool per_head, const std::vector<int32_t>& counts) {
  v1::Policy policy = Named(name);
  v1::Budget& budget = *policy.mutable_parts()->mutable_budget();
  (per_head ? budget.mutable_explicit_heads() : budget.mutable_explicit_layers())
      ->set_counts_le(Int32Bytes(counts));
  return policy;
}

TEST(ParsePolicy, ExplicitCountsReplaceTheAmount) {
  EXPECT_EQ(Parsed(WithCounts("snapkv", false, {5, 9})).budget,
            (Budget{.explicit_layers = {5, 9}}));
  EXPECT_EQ(Parsed(WithCounts("pyramidkv", false, {5, 9})).budget,
            (Budget{.explicit_layers = {5, 9}}));
  EXPECT_EQ(Parsed(WithCounts("adakv", false, {5})).budget,
            (Budget{.adaptive_alpha = 0.2, .explicit_layers = {5}}));
  EXPECT_EQ(Parsed(WithCounts("adakv", true, {5, 1})).budget, (Budget{.explicit_heads = {5, 1}}));
  v1::Policy both = WithCounts("snapkv", false, {5, 9});
  both.mutable_parts()->mutable_budget()->set_kept_tokens(5);
  ExpectRefusal(ParsePolicy(both, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                "policy.parts.budget");
}

TEST(ParsePolicy, CountsAreInt32sOfAtLeastOne) {
  for (const bool per_head : {false, true}) {
    const std::string field = std::string("policy.parts.budget.explicit_") +
                              (per_head ? "heads" : "layers") + ".counts_le";
    ExpectRefusal(ParsePolicy(WithCounts("snapkv", per_head, {}), {}).status(), kInvalidArgument,
                  ErrorReason::kFieldMissing, field);
    for (const int32_t count : {0, -1}) {
      ExpectRefusal(ParsePolicy(WithCounts("snapkv", per_head, {3, count}), {}).status(),
                    kInvalidArgument, ErrorReason::kFieldInvalid, field);
    }
    v1::Policy ragged = WithCounts("snapkv", per_head, {3});
    v1::Budget& budget = *ragged.mutable_parts()->mutable_budget();
    (per_head ? budget.mutable_explicit_heads() : budget.mutable_explicit_layers())
        ->set_counts_le("abc");
    ExpectRefusal(ParsePolicy(ragged, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  field);
  }
  ExpectRefusal(ParsePolicy(WithCounts("snapkv", false, std::vector<int32_t>(257, 1)), {}).status(),
                kInvalidArgument, ErrorReason::kTooMany,
                "policy.parts.budget.explicit_layers.counts_le");
}

TEST(ParsePolicy, BudgetsThatCannotGoTogetherAreRefused) {
  const auto refuse = [](v1::Policy policy, v1::Granularity granularity, const char* field) {
    policy.mutable_parts()->set_granularity(granularity);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                  std::string("policy.parts.budget.") + field);
  };
  refuse(Named("pyramidkv"), v1::GRANULARITY_PER_SEQUENCE, "pyramid");
  refuse(WithCounts("snapkv", false, {3}), v1::GRANULARITY_PER_SEQUENCE, "explicit_layers");
  refuse(WithCounts("snapkv", true, {3}), v1::GRANULARITY_PER_LAYER, "explicit_heads");
  refuse(WithCounts("snapkv", true, {3}), v1::GRANULARITY_PER_SEQUENCE, "explicit_heads");
  refuse(WithCounts("pyramidkv", true, {3}), v1::GRANULARITY_PER_HEAD, "explicit_heads");
  v1::Policy pyramid_per_layer = Named("pyramidkv");
  pyramid_per_layer.mutable_parts()->set_granularity(v1::GRANULARITY_PER_LAYER);
  EXPECT_TRUE(ParsePolicy(pyramid_per_layer, {}).ok());
}

TEST(ParsePolicy, PyramidsLagsAndStagesStayInTheirRange) {
  for (const uint32_t beta : {0u, (1u << 20) + 1, ~0u}) {
    v1::Policy policy = Named("pyramidkv");
    policy.mutable_parts()->mutable_budget()->mutable_pyramid()->set_beta(beta);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.budget.pyramid.beta");
  }
  for (const uint32_t lag : {0u, 65537u, ~0u}) {
    v1::Policy policy = Named("lagkv");
    policy.mutable_parts()->mutable_scorer()->mutable_lagkv()->set_lag(lag);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.scorer.lagkv.lag");
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-0.1, 1.1, nan, inf}) {
    v1::Policy policy = Named("criticalkv");
    policy.mutable_parts()->mutable_scorer()->mutable_critical()->set_first_stage(bad);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.scorer.critical.first_stage");
  }
  for (const double bad : {-1e-9, 1e39, nan, inf}) {
    v1::Policy policy = Named("criticalkv");
    policy.mutable_parts()->mutable_scorer()->mutable_critical()->set_epsilon(bad);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.scorer.critical.epsilon");
  }
}

TEST(ParsePolicy, ExpectedAttentionAveragesAndTakesNoWindow) {
  EXPECT_TRUE(Parsed(Named("expected-attention")).has_reduce);
  for (const uint32_t future : {0u, 65537u}) {
    v1::Policy policy = Named("expected-attention");
    policy.mutable_parts()->mutable_scorer()->mutable_expected_attention()->set_future(future);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.scorer.expected_attention.future");
  }
  v1::Policy sum = Named("expected-attention");
  sum.mutable_parts()->mutable_reduce()->set_kind(v1::Reduce::KIND_SUM);
  ExpectRefusal(ParsePolicy(sum, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                "policy.parts.reduce");
  v1::Policy window = Named("expected-attention");
  window.mutable_parts()->mutable_window()->set_last(3);
  ExpectRefusal(ParsePolicy(window, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                "policy.parts.window");
  v1::Policy pool = Named("expected-attention");
  pool.mutable_parts()->mutable_pool()->set_kind(v1::Pool::KIND_NONE);
  ExpectRefusal(ParsePolicy(pool, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                "policy.parts.pool");
  v1::Policy per_layer = Named("expected-attention");
  per_layer.mutable_parts()->set_granularity(v1::GRANULARITY_PER_LAYER);
  EXPECT_TRUE(ParsePolicy(per_layer, {}).ok());
}

TEST(ParsePolicy, CriticalAveragesAndNeedsASetPerHead) {
  for (const auto kind : {v1::Reduce::KIND_SUM, v1::Reduce::KIND_MAX, v1::Reduce::KIND_PRE}) {
    v1::Policy policy = Named("criticalkv");
    policy.mutable_parts()->mutable_reduce()->set_kind(kind);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                  "policy.parts.reduce");
  }
  for (const auto granularity : {v1::GRANULARITY_PER_LAYER, v1::GRANULARITY_PER_SEQUENCE}) {
    v1::Policy policy = Named("criticalkv");
    policy.mutable_parts()->set_granularity(granularity);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                  "policy.parts.granularity");
  }
}

TEST(ParsePolicy, TheOperatorsOwnPoliciesAreNamesLikeOurs) {
  PolicyDefaults defaults{.sinks = 9};
  PolicySpec own = *ExpandPolicy("snapkv");
  own.name = "chat";
  own.protect.sinks = 2;
  own.budget.adaptive_alpha = 0.5;
  defaults.defined = {own};
  const PolicySpec parsed = Parsed(Named("chat"), defaults);
  EXPECT_EQ(parsed.name, "chat");
  EXPECT_EQ(parsed.protect.sinks, 2u);  // the operator's own say theirs
  EXPECT_EQ(parsed.budget, (Budget{.kept_ratio = 0.5, .adaptive_alpha = 0.5}));
  EXPECT_EQ(KnownPolicies(defaults).back().name(), "chat");
  const absl::Status status = ParsePolicy(Named("chats"), defaults).status();
  EXPECT_NE(std::string(status.message()).find(" chat"), std::string::npos);
  ExpectRefusal(ParsePolicy(Named("chat"), {}).status(), kInvalidArgument,
                ErrorReason::kPolicyUnknown, "policy.name");
}

TEST(ParsePolicy, BudgetChoicesAreLaidOverOneByOne) {
  v1::Policy policy = Named("adakv");
  policy.mutable_parts()->mutable_budget()->set_kept_tokens(32);
  EXPECT_EQ(Parsed(policy).budget, (Budget{.kept_tokens = 32, .adaptive_alpha = 0.2}));
  policy.mutable_parts()->mutable_budget()->mutable_uniform_heads();
  EXPECT_EQ(Parsed(policy).budget, (Budget{.kept_tokens = 32}));
  policy.mutable_parts()->mutable_budget()->clear_amount();
  policy.mutable_parts()->mutable_budget()->mutable_adaptive()->set_alpha(1.0);
  EXPECT_EQ(Parsed(policy).budget, (Budget{.kept_ratio = 0.5, .adaptive_alpha = 1.0}));
}

TEST(ParsePolicy, APartReplacesTheNamedOneAsAWhole) {
  v1::Policy policy = Named("h2o");
  policy.mutable_parts()->mutable_window()->set_last(32);
  policy.mutable_parts()->mutable_protect()->set_sinks(3);
  const PolicySpec spec = Parsed(policy);
  EXPECT_EQ(spec.window, (Window{.last = 32}));
  EXPECT_EQ(spec.protect, (Protect{.sinks = 3}));  // the share of recent rows is gone
  EXPECT_EQ(spec.score.scorer, Scorer::kAttention);
}

TEST(ParsePolicy, OperatorsProtectionHoldsUntilARequestGivesItsOwn) {
  const PolicyDefaults defaults = {.sinks = 8, .recent = 2};
  EXPECT_EQ(Parsed(Named("h2o"), defaults).protect, (Protect{8, 2, 0.5}));
  v1::Policy policy = Named("h2o");
  policy.mutable_parts()->mutable_protect();
  EXPECT_EQ(Parsed(policy, defaults).protect, (Protect{}));
  EXPECT_EQ(Parsed(HandMade(), defaults).protect, (Protect{.sinks = 2}));
}

TEST(ParsePolicy, NothingAtAllMeansTheDefaultPolicy) {
  EXPECT_EQ(Parsed({}, {.name = "tova"}).name, "tova");
  EXPECT_EQ(Parsed({}, {.name = "tova"}).granularity, Granularity::kPerLayer);
  ExpectRefusal(ParsePolicy({}, {}).status(), kInvalidArgument, ErrorReason::kFieldMissing,
                "policy");
  // Parts without a name are a policy of their own, whatever the default is.
  v1::Policy empty_parts;
  empty_parts.mutable_parts();
  ExpectRefusal(ParsePolicy(empty_parts, {.name = "tova"}).status(), kInvalidArgument,
                ErrorReason::kFieldMissing, "policy.parts.scorer");
}

TEST(ParsePolicy, UnknownNamesListTheKnownOnes) {
  const absl::Status status = ParsePolicy(Named("CANARY-snap"), {}).status();
  ExpectRefusal(status, kInvalidArgument, ErrorReason::kPolicyUnknown, "policy.name");
  const std::string text(status.message().data(), status.message().size());
  EXPECT_EQ(text.find("CANARY"), std::string::npos);
  for (const std::string& name : PolicyNames()) {
    EXPECT_NE(text.find(" " + name), std::string::npos) << name;
  }
}

TEST(ParsePolicy, HandMadePartsMustBeComplete) {
  EXPECT_TRUE(ParsePolicy(HandMade(), {}).ok());
  const struct {
    const char* field;
    void (*clear)(v1::PolicyParts&);
  } parts[] = {{"scorer", [](v1::PolicyParts& p) { p.clear_scorer(); }},
               {"window", [](v1::PolicyParts& p) { p.clear_window(); }},
               {"reduce", [](v1::PolicyParts& p) { p.clear_reduce(); }},
               {"pool", [](v1::PolicyParts& p) { p.clear_pool(); }},
               {"protect", [](v1::PolicyParts& p) { p.clear_protect(); }},
               {"budget", [](v1::PolicyParts& p) { p.clear_budget(); }}};
  for (const auto& part : parts) {
    v1::Policy policy = HandMade();
    part.clear(*policy.mutable_parts());
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldMissing,
                  std::string("policy.parts.") + part.field);
  }
  v1::Policy policy = HandMade();
  policy.mutable_parts()->clear_granularity();
  ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kEnumUnspecified,
                "policy.parts.granularity");
}

TEST(ParsePolicy, PartsThatTheScorerCannotUseAreRefused) {
  for (const bool random : {false, true}) {
    for (const char* part : {"window", "reduce", "pool"}) {
      v1::Policy policy = HandMade();
      v1::PolicyParts& parts = *policy.mutable_parts();
      if (random) {
        parts.mutable_scorer()->mutable_random()->set_random_key(0);
      } else {
        parts.mutable_scorer()->mutable_recency();
      }
      const std::string keep = part;
      if (keep != "window") parts.clear_window();
      if (keep != "reduce") parts.clear_reduce();
      if (keep != "pool") parts.clear_pool();
      ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                    "policy.parts." + keep);
    }
  }
}

// Kind: a count that rounds to zero. https://github.com/NVIDIA/kvpress/pull/264
TEST(ParsePolicy, BudgetsOutsideTheirRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double ratio : {0.0, -0.0, -0.5, 1.0000000001, nan, -nan, inf, -inf}) {
    v1::Policy policy = Named("snapkv");
    policy.mutable_parts()->mutable_budget()->set_kept_ratio(ratio);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.budget.kept_ratio");
  }
  v1::Policy policy = Named("snapkv");
  policy.mutable_parts()->mutable_budget()->set_kept_tokens(0);
  ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kFieldInvalid,
                "policy.parts.budget.kept_tokens");
  for (const double share : {-0.001, 1.001, nan, inf}) {
    v1::Policy with_share = HandMade();
    with_share.mutable_parts()->mutable_protect()->set_recent_share(share);
    ExpectRefusal(ParsePolicy(with_share, {}).status(), kInvalidArgument,
                  ErrorReason::kFieldInvalid, "policy.parts.protect.recent_share");
    v1::Policy with_alpha = HandMade();
    with_alpha.mutable_parts()->mutable_budget()->mutable_adaptive()->set_alpha(share);
    ExpectRefusal(ParsePolicy(with_alpha, {}).status(), kInvalidArgument,
                  ErrorReason::kFieldInvalid, "policy.parts.budget.adaptive.alpha");
  }
}

TEST(ParsePolicy, PoolKernelsAreOddAndBelongToAPool) {
  const auto parse = [](v1::Pool::Kind kind, uint32_t kernel) {
    v1::Policy policy = HandMade();
    policy.mutable_parts()->mutable_pool()->set_kind(kind);
    policy.mutable_parts()->mutable_pool()->set_kernel(kernel);
    return ParsePolicy(policy, {}).status();
  };
  for (const uint32_t kernel : {1u, 3u, 255u}) {
    EXPECT_TRUE(parse(v1::Pool::KIND_AVG, kernel).ok()) << kernel;
  }
  for (const uint32_t kernel : {0u, 2u, 254u, 256u, 257u, 0xFFFFFFFFu}) {
    ExpectRefusal(parse(v1::Pool::KIND_MAX, kernel), kInvalidArgument, ErrorReason::kFieldInvalid,
                  "policy.parts.pool.kernel");
  }
  EXPECT_TRUE(parse(v1::Pool::KIND_NONE, 0).ok());
  ExpectRefusal(parse(v1::Pool::KIND_NONE, 1), kInvalidArgument, ErrorReason::kFieldInvalid,
                "policy.parts.pool.kernel");
}

TEST(ParsePolicy, AdaptiveNeedsHeadsOfTheirOwn) {
  for (const auto granularity : {v1::GRANULARITY_PER_LAYER, v1::GRANULARITY_PER_SEQUENCE}) {
    v1::Policy policy = Named("adakv");
    policy.mutable_parts()->set_granularity(granularity);
    ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument, ErrorReason::kPolicyInvalid,
                  "policy.parts.budget.adaptive");
  }
}

TEST(ParsePolicy, UnknownEnumsAreRefused) {
  const struct {
    const char* field;
    void (*set)(v1::PolicyParts&, int);
  } enums[] = {
      {"reduce.kind",
       [](v1::PolicyParts& p, int n) {
         p.mutable_reduce()->set_kind(static_cast<v1::Reduce::Kind>(n));
       }},
      {"pool.kind", [](v1::PolicyParts& p,
                       int n) { p.mutable_pool()->set_kind(static_cast<v1::Pool::Kind>(n)); }},
      {"scorer.obc.form",
       [](v1::PolicyParts& p, int n) {
         p.mutable_scorer()->mutable_obc()->set_form(static_cast<v1::Scorer::Obc::Form>(n));
       }},
      {"granularity",
       [](v1::PolicyParts& p, int n) { p.set_granularity(static_cast<v1::Granularity>(n)); }}};
  for (const auto& e : enums) {
    for (const int number : {0, 77, -1}) {
      v1::Policy policy = HandMade();
      e.set(*policy.mutable_parts(), number);
      ExpectRefusal(ParsePolicy(policy, {}).status(), kInvalidArgument,
                    ErrorReason::kEnumUnspecified, std::string("policy.parts.") + e.field);
    }
  }
}

// ---- the echo
// --------------------------------------------------------------------------------------

void ExpectEchoIsStable(const v1::Policy& policy, const PolicyDefaults& defaults) {
  const PolicySpec spec = Parsed(policy, defaults);
  v1::Policy again;
  *again.mutable_parts() = PolicyPartsOf(spec);
  EXPECT_EQ(Bytes(PolicyPartsOf(Parsed(again, defaults))), Bytes(again.parts()));
  again.set_name(policy.name());  // a name below complete parts changes nothing
  EXPECT_EQ(Bytes(PolicyPartsOf(Parsed(again, defaults))), Bytes(again.parts()));
}

TEST(PolicyEcho, ExpandingAnEchoGivesTheEcho) {
  const PolicyDefaults defaults = {.name = "h2o", .kept_ratio = 0.3, .sinks = 4};
  for (const std::string& name : PolicyNames()) {
    SCOPED_TRACE(name);
    ExpectEchoIsStable(Named(name), defaults);
  }
  ExpectEchoIsStable(HandMade(), defaults);
  ExpectEchoIsStable(WithCounts("snapkv", false, {5, 90'000}), defaults);
  ExpectEchoIsStable(WithCounts("criticalkv", true, {1, 2, 3}), defaults);
  v1::Policy random;
  random.mutable_parts()->mutable_scorer()->mutable_random()->set_random_key(~uint64_t{0});
  random.mutable_parts()->mutable_protect()->set_recent_share(1.0 / 3);
  random.mutable_parts()->mutable_budget()->set_kept_ratio(5e-324);
  random.mutable_parts()->set_granularity(v1::GRANULARITY_PER_SEQUENCE);
  ExpectEchoIsStable(random, defaults);
}

TEST(PolicyEcho, SaysEverythingThatRan) {
  const v1::PolicyParts parts = PolicyPartsOf(Parsed(Named("adakv+obc-joint")));
  EXPECT_EQ(parts.scorer().obc().form(), v1::Scorer::Obc::FORM_JOINT);
  EXPECT_EQ(parts.window().last(), 64u);
  EXPECT_EQ(parts.reduce().kind(), v1::Reduce::KIND_SUM);
  EXPECT_EQ(parts.pool().kind(), v1::Pool::KIND_AVG);
  EXPECT_EQ(parts.pool().kernel(), 5u);
  EXPECT_EQ(parts.protect().recent(), 64u);
  EXPECT_EQ(parts.budget().kept_ratio(), 0.5);
  EXPECT_TRUE(parts.budget().has_uniform_layers());
  EXPECT_EQ(parts.budget().adaptive().alpha(), 0.2);
  EXPECT_EQ(parts.granularity(), v1::GRANULARITY_PER_HEAD);
  const v1::PolicyParts streaming = PolicyPartsOf(Parsed(Named("streaming")));
  EXPECT_FALSE(streaming.has_window() || streaming.has_reduce() || streaming.has_pool());
}

TEST(KnownPolicies, ListsEveryNameWithoutAnAmount) {
  const auto policies = KnownPolicies({.sinks = 9});
  ASSERT_EQ(policies.size(), PolicyNames().size());
  for (size_t i = 0; i < policies.size(); ++i) {
    EXPECT_EQ(policies[i].name(), PolicyNames()[i]);
    EXPECT_EQ(policies[i].parts().budget().amount_case(), v1::Budget::AMOUNT_NOT_SET);
    EXPECT_EQ(policies[i].parts().protect().sinks(), 9u);
    EXPECT_TRUE(ParsePolicy(policies[i], {}).ok());  // the amount then comes from the operator
  }
}

}  // namespace
}  // namespace kvtriage
