// Eviction while the reference decoder decodes, with a real service: over a few hundred steps it
// generates what a float64 model generates that masks the same rows, keeps the rows whose running
// sums are largest in float64, and forgets drafts that were rejected.
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "client/cpp/example/decoder/decode_evictor.h"
#include "gtest/gtest.h"
#include "tests/integration/decoder_worker.h"
#include "tests/support/plain_decoder.h"
#include "tests/support/service_process.h"
#include "tests/support/small_model.h"

namespace kvtriage::decoder {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";
constexpr uint32_t kPrompt = 150, kSteps = 300, kBudget = 96, kEvery = 32;
constexpr uint32_t kCapacity = kPrompt + kSteps + 8;

const Weights& Model() {
  static const Weights weights = RandomWeights(SmallConfig(), 30);
  return weights;
}
const std::vector<int32_t>& Prompt() {
  static const std::vector<int32_t> prompt = SmallPrompt(31, kPrompt);
  return prompt;
}

// What the queries so far have given each row that is visible, summed over the group's query heads:
// [layer][KV head], in the order of PlainDecoder::Visible.
class RunningSums {
 public:
  RunningSums() : sums_(Model().config.layers, std::vector<Doubles>(Model().config.kv_heads)) {}

  void Add(const PlainDecoder& model) {
    const ModelConfig& config = Model().config;
    for (uint32_t l = 0; l < config.layers; ++l) {
      for (uint32_t h = 0; h < config.query_heads; ++h) {
        const Doubles& attention = model.Attention(l, h);
        Doubles& sums = sums_[l][h / (config.query_heads / config.kv_heads)];
        sums.resize(attention.size());
        for (size_t p = 0; p < attention.size(); ++p) sums[p] += attention[p];
      }
    }
  }
  void ExpectBestAndKeep(const client::KeptSets& kept) {
    for (uint32_t l = 0; l < Model().config.layers; ++l) {
      for (uint32_t h = 0; h < Model().config.kv_heads; ++h) {
        const std::vector<int32_t>& rows = kept.At(l, h);
        ASSERT_EQ(rows.size(), kBudget);
        ExpectBest(rows, sums_[l][h], kBudget / 2);
        Doubles left;
        for (const int32_t row : rows) left.push_back(sums_[l][h][static_cast<size_t>(row)]);
        sums_[l][h] = left;
      }
    }
  }

 private:
  std::vector<std::vector<Doubles>> sums_;
};

class DecodeEviction : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& flags = {}) {
    ASSERT_TRUE(service_.Start(flags));
    worker_.LendTo(service_);
    for (const int32_t token : Prompt()) {
      masked_.Step(token);
      sums_.Add(masked_);
    }
  }
  // Observes, and has the masked model forget what was evicted.
  void Observe(DecodeEvictor& evictor, bool attention_sums) {
    const Observed observed = evictor.Observe();
    ASSERT_EQ(observed.outcome, client::Outcome::kApplied) << observed.status;
    ASSERT_TRUE(observed.evicted.has_value());
    const client::KeptSets& kept = observed.evicted->kept_sets;
    if (attention_sums) sums_.ExpectBestAndKeep(kept);
    worker_.Mask(masked_, kept);
    ++evictions_;
  }
  // A wrong guess of what comes next: computed, observed as drafts, and taken back.
  void RejectDrafts(DecodeEvictor& evictor, uint64_t seed) {
    const int32_t next = worker_.next();
    const std::vector<int32_t> drafts = SmallPrompt(seed, 5);
    ASSERT_TRUE(worker_.decoder().Run(drafts).ok());
    const uint32_t rows = worker_.decoder().kv().longest();
    const Observed observed = evictor.Observe({.draft_rows = 5});
    ASSERT_EQ(observed.outcome, client::Outcome::kApplied) << observed.status;
    EXPECT_FALSE(observed.evicted.has_value());
    evictor.Reject(5);
    EXPECT_EQ(worker_.decoder().kv().longest(), rows - 5);
    EXPECT_EQ(worker_.next(), next);
  }

  ServiceProcess service_{kServiceProgram};
  DecoderWorker worker_{Model(), kCapacity};
  PlainDecoder masked_{Model()};
  RunningSums sums_;
  uint32_t evictions_ = 0;
};

class DecodeEvictionPolicy : public DecodeEviction,
                             public testing::WithParamInterface<const char*> {};

TEST_P(DecodeEvictionPolicy, GeneratesWhatTheMaskedModelGenerates) {
  const std::string policy = GetParam();
  Start();
  DecodeEvictor evictor(worker_.session(), worker_.decoder(),
                        client::NamedPolicyTokens(policy, kBudget), worker_.log());
  // The prompt in two parts.
  worker_.Run(std::span(Prompt()).first(100));
  const Observed first = evictor.Observe({.accumulate_only = true});
  ASSERT_EQ(first.outcome, client::Outcome::kApplied) << first.status;
  EXPECT_TRUE(first.started);
  EXPECT_FALSE(first.evicted.has_value());
  worker_.Run(std::span(Prompt()).subspan(100));
  Observe(evictor, policy == "h2o");

  for (uint32_t step = 1; step <= kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    worker_.ExpectSameSteps(masked_, 1);
    sums_.Add(masked_);
    if (step % 50 == 0) RejectDrafts(evictor, step);
    if (step % kEvery == 0) Observe(evictor, policy == "h2o");
    ASSERT_LE(worker_.decoder().kv().longest(), kBudget + kEvery);
  }
  EXPECT_EQ(evictions_, 1 + kSteps / kEvery);
  EXPECT_EQ(worker_.log().str(), "");
}

INSTANTIATE_TEST_SUITE_P(Policies, DecodeEvictionPolicy,
                         testing::Values("h2o", "h2o+obc-joint", "vatp"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '+' || c == '-'; }, '_');
                           return name;
                         });

// ---- the service dies ---------------------------------------------------------------------------

class DecodeEvictionKilled : public DecodeEviction {
 protected:
  // Runs the prompt and observes it under a service that dies then; decodes on, until a new service
  // evicts again.
  void Run(const char* fault, client::Outcome outcome, uint32_t rows_left) {
    Start({std::string("--fault=") + fault});
    DecodeEvictor evictor(worker_.session(), worker_.decoder(),
                          client::NamedPolicyTokens("h2o", kBudget), worker_.log());
    worker_.Run(Prompt());
    const Observed observed = evictor.Observe();
    EXPECT_EQ(service_.process().WaitExit(), 128 + SIGKILL);
    EXPECT_EQ(client::OutcomeName(observed.outcome), client::OutcomeName(outcome));
    EXPECT_FALSE(observed.evicted.has_value());
    EXPECT_NE(worker_.log().str(), "");
    ASSERT_EQ(worker_.decoder().kv().longest(), rows_left);
    if (rows_left == kPrompt) {
      worker_.ExpectSameSteps(masked_, 8);
    } else {  // the kept sets are lost with the answer; the rows are not
      worker_.Generate(8);
    }
    ASSERT_TRUE(service_.Start());
    ASSERT_TRUE(worker_.session().WaitAlive(20'000));
    const Observed again = evictor.Observe();
    ASSERT_EQ(again.outcome, client::Outcome::kApplied) << again.status;
    EXPECT_TRUE(again.started);
    ASSERT_TRUE(again.evicted.has_value());
    EXPECT_EQ(worker_.decoder().kv().longest(), kBudget);
    if (rows_left != kPrompt) return;
    worker_.Mask(masked_, again.evicted->kept_sets);
    worker_.ExpectSameSteps(masked_, 8);
  }
};

TEST_F(DecodeEvictionKilled, BeforeTheMove) {
  Run("lane.after_score:kill", client::Outcome::kUnchanged, kPrompt);
}
TEST_F(DecodeEvictionKilled, InTheMiddleOfTheMove) {
  Run("move.mid_rows:kill", client::Outcome::kDamaged, kPrompt);
}
TEST_F(DecodeEvictionKilled, BehindTheMove) {
  Run("ledger.after_closed:kill", client::Outcome::kApplied, kBudget);
}

// The scores are lost while drafts are out: they cannot be rewound, and begin anew.
TEST_F(DecodeEviction, ARewindThatFailsMakesTheScoresBeginAnew) {
  Start();
  DecodeEvictor evictor(worker_.session(), worker_.decoder(),
                        client::NamedPolicyTokens("h2o", kBudget), worker_.log());
  worker_.Run(Prompt());
  Observe(evictor, true);
  worker_.ExpectSameSteps(masked_, 4);
  const int32_t draft = 7;
  ASSERT_TRUE(worker_.decoder().Run({{draft}}).ok());
  ASSERT_EQ(evictor.Observe({.draft_rows = 1}).outcome, client::Outcome::kApplied);
  ASSERT_TRUE(worker_.session().ReleaseSequences({Decoder::kSequenceId}).ok());
  evictor.Reject(1);
  EXPECT_NE(worker_.log().str().find("rewind"), std::string::npos);
  worker_.ExpectSameSteps(masked_, 4);
  const Observed observed = evictor.Observe();
  ASSERT_EQ(observed.outcome, client::Outcome::kApplied) << observed.status;
  EXPECT_TRUE(observed.started);
  ASSERT_TRUE(observed.evicted.has_value());
  worker_.Mask(masked_, observed.evicted->kept_sets);
  worker_.ExpectSameSteps(masked_, 4);
}

}  // namespace
}  // namespace kvtriage::decoder
