// Whole decodes against the float64 replay of the same rules, eviction by eviction.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "service/policy/named_policies.h"
#include "tests/unit/engine/decode_replay.h"

namespace kvtriage {
namespace {

PolicySpec Named(std::string_view name, uint32_t tokens) {
  PolicySpec policy = *ExpandPolicy(name);
  policy.budget.kept_tokens = tokens;
  return policy;
}

// One decode: what the worker does at every step, and what the replay expects of it.
class Decode {
 public:
  Decode(const DecodeShape& shape, const PolicySpec& policy)
      : world_({}, nullptr, MakeCpuBackend(1)),
        worker_(world_, shape),
        replay_(worker_, policy),
        policy_(policy) {}

  // Rows of each sequence come; those before `drafts` count, and the drafts of the last call do.
  void Step(std::vector<DecodeStep> steps) {
    for (const DecodeStep& step : steps) worker_.Append(step.id, step.rows);
    for (const DecodeStep& step : steps) {
      const uint32_t rows = Rows(step.id);
      replay_.Add(step.id, added_[step.id], rows - step.drafts);
      added_[step.id] = rows - step.drafts;
    }
    // The policy comes once.
    const ObserveSpec spec = worker_.Observe(first_ ? &policy_ : nullptr, steps);
    const ObserveAnswer answer = RunUnfollowed(spec);
    ASSERT_EQ(answer.steps.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(answer.steps[i].started, first_);
      EXPECT_EQ(answer.steps[i].draft_rows, steps[i].drafts);
      const uint32_t trigger = std::max(steps[i].trigger, *policy_.budget.kept_tokens);
      const bool over = Rows(steps[i].id) > trigger;
      EXPECT_EQ(answer.steps[i].evicted.has_value(),
                over && steps[i].drafts == 0 && !steps[i].accumulate_only);
      if (!answer.steps[i].evicted) continue;
      const SequenceOutcome& outcome = answer.evicted.sequences[*answer.steps[i].evicted];
      close_ += replay_.Check(steps[i].id, Rows(steps[i].id), outcome.triage);
      worker_.Follow(outcome);
      added_[steps[i].id] = Rows(steps[i].id);
      ++evictions_;
    }
    first_ = false;
  }

  void Rewind(uint64_t id, uint32_t rows) {
    EXPECT_EQ(worker_.TryRun(worker_.Rewind(id, rows)), absl::OkStatus());
    worker_.TakeBack(id, rows);
  }

  DecodeWorker& worker() { return worker_; }
  uint32_t Rows(uint64_t id) { return static_cast<uint32_t>(worker_.sequence(id).physical_len); }
  uint32_t evictions() const { return evictions_; }
  uint32_t close() const { return close_; }

 private:
  ObserveAnswer RunUnfollowed(const ObserveSpec& spec) {
    const CallResult result = Start(world_, worker_.session(), spec).Get();
    EXPECT_TRUE(result.status.ok()) << result.status << " " << FieldOf(result.status);
    return result.status.ok() ? std::get<ObserveAnswer>(result.answer->body) : ObserveAnswer();
  }

  EngineWorld world_;
  DecodeWorker worker_;
  DecodeReplay replay_;
  const PolicySpec policy_;
  std::map<uint64_t, uint32_t> added_;
  bool first_ = true;
  uint32_t evictions_ = 0, close_ = 0;
};

TEST(Decode, TwoThousandStepsOfThreeSequencesEqualTheReplay) {
  Decode decode({.capacity = 512}, Named("h2o", 256));
  for (uint32_t step = 1; step <= 2000 && !testing::Test::HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const bool drafts = step % 50 == 0;
    // The first sequence is cut back at every step, the others when they have grown for a while.
    decode.Step(
        {{1, drafts ? 4u : 1u, drafts ? 3u : 0u}, {2, 1, 0, 288}, {3, 1, 0, 320, step % 7 == 0}});
    if (!drafts) continue;
    // One draft of three is accepted, by the next call.
    decode.Rewind(1, 2);
  }
  EXPECT_GT(decode.evictions(), 1600u);
  // Ties are for the rule of ties; most cuts must be clear.
  EXPECT_LT(decode.close(), decode.evictions());
  for (const uint64_t id : {1, 2, 3}) decode.worker().CheckRows(id);
}

struct Kind {
  std::string name;
  PolicySpec policy;
  DecodeShape shape;
};

PolicySpec With(PolicySpec policy, const std::function<void(PolicySpec&)>& change) {
  change(policy);
  return policy;
}

std::vector<Kind> Kinds() {
  const DecodeShape plain{.sequences = 2, .capacity = 128};
  DecodeShape roped = plain;
  roped.before_rope = true;
  DecodeShape more = plain;
  more.heads = {3, 3, 3};
  more.group = 3;
  const PolicySpec h2o = Named("h2o", 40);
  PolicySpec vatp = Named("vatp", 40);
  vatp.protect.sinks = 4;  // its own twenty would leave nothing to choose
  return {
      {"attention", h2o, plain},
      {"more_heads", h2o, more},
      {"obc_value", Named("h2o+obc-value", 40), plain},
      {"obc_key", Named("h2o+obc-key", 40), plain},
      {"obc_joint", Named("h2o+obc-joint", 40), plain},
      {"drop", Named("h2o+drop", 40), plain},
      {"vatp", vatp, plain},
      {"vatp_mean", With(vatp, [](auto& p) { p.score.reduce = Reduce::kMean; }), plain},
      {"mean", With(h2o, [](auto& p) { p.score.reduce = Reduce::kMean; }), plain},
      {"max", With(h2o, [](auto& p) { p.score.reduce = Reduce::kMax; }), plain},
      {"pre", With(Named("h2o+obc-joint", 40), [](auto& p) { p.score.reduce = Reduce::kPre; }),
       plain},
      {"decay", With(h2o, [](auto& p) { p.window.decay = 0.9; }), plain},
      {"decay_drop", With(Named("h2o+drop", 40), [](auto& p) { p.window.decay = 0.75; }), plain},
      {"pooled",
       With(h2o,
            [](auto& p) {
              p.score.pool = Pool::kAvg;
              p.score.pool_kernel = 5;
            }),
       plain},
      {"max_pooled",
       With(h2o,
            [](auto& p) {
              p.score.pool = Pool::kMax;
              p.score.pool_kernel = 3;
            }),
       plain},
      {"per_layer", With(h2o, [](auto& p) { p.granularity = Granularity::kPerLayer; }), plain},
      {"before_rope", h2o, roped},
      {"before_rope_joint", Named("h2o+obc-joint", 40), roped},
  };
}

class DecodeKinds : public testing::TestWithParam<Kind> {};

TEST_P(DecodeKinds, EqualTheReplay) {
  Decode decode(GetParam().shape, GetParam().policy);
  // A prefill in chunks, then steps of one to four rows, drafts among them.
  for (uint32_t chunk = 0; chunk < 3; ++chunk) {
    decode.Step({{1, 20, 0, 0, true}, {2, 9, 0, 0, true}});
  }
  for (uint32_t step = 1; step <= 160 && !testing::Test::HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const uint32_t drafts = step % 10 == 0 ? 3 : 0;
    decode.Step({{1, 1 + step % 4 + drafts, drafts, 50}, {2, 1, step % 9 == 0 ? 1u : 0u}});
    if (drafts > 0) decode.Rewind(1, 1 + step / 10 % 3);
  }
  EXPECT_GT(decode.evictions(), 100u);
  for (const uint64_t id : {1, 2}) decode.worker().CheckRows(id);
}

INSTANTIATE_TEST_SUITE_P(All, DecodeKinds, testing::ValuesIn(Kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvtriage
