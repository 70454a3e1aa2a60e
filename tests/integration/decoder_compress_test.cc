// The reference decoder and a real service: what it decodes over rows that were moved is what a
// float64 model decodes that masks the same rows; and whatever becomes of the service, it goes on.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "client/cpp/example/decoder/evictor.h"
#include "gtest/gtest.h"
#include "tests/integration/decoder_worker.h"
#include "tests/support/plain_decoder.h"
#include "tests/support/service_process.h"
#include "tests/support/small_model.h"

namespace kvtriage::decoder {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";
constexpr uint32_t kPrompt = 400, kSteps = 24, kCapacity = kPrompt + kSteps;
constexpr uint32_t kKept = kPrompt / 5;

const Weights& Model() {
  static const Weights weights = RandomWeights(SmallConfig(), 20);
  return weights;
}
const std::vector<int32_t>& Prompt() {
  static const std::vector<int32_t> prompt = SmallPrompt(21, kPrompt);
  return prompt;
}

// The prompt in float64, and the attention that its rows gave: [layer][KV head][row], summed over
// the group's query heads and the newest 1, 64 or all rows.
struct Reference {
  using Sums = std::vector<std::vector<Doubles>>;
  PlainDecoder model{Model()};
  Sums last, window, all;

  Reference() {
    const ModelConfig& config = Model().config;
    for (Sums* sums : {&last, &window, &all}) {
      sums->assign(config.layers, std::vector<Doubles>(config.kv_heads, Doubles(kPrompt)));
    }
    for (uint32_t row = 0; row < kPrompt; ++row) {
      model.Step(Prompt()[row]);
      for (uint32_t l = 0; l < config.layers; ++l) {
        for (uint32_t h = 0; h < config.query_heads; ++h) {
          const Doubles& attention = model.Attention(l, h);
          const uint32_t head = h / (config.query_heads / config.kv_heads);
          for (size_t p = 0; p < attention.size(); ++p) {
            if (row == kPrompt - 1) last[l][head][p] += attention[p];
            if (row >= kPrompt - 64) window[l][head][p] += attention[p];
            all[l][head][p] += attention[p];
          }
        }
      }
    }
  }
};
const Reference& Float64() {
  static const Reference reference;
  return reference;
}

// A decoder of its own with the prompt computed.
struct Worker : DecoderWorker {
  explicit Worker(const ServiceProcess* service, InputsWanted wanted = {})
      : DecoderWorker(Model(), kCapacity, wanted) {
    if (service != nullptr) LendTo(*service);
    Run(Prompt());
  }
  Eviction Compress(const client::Policy& policy) {
    return Evictor(session(), decoder(), log()).Compress(policy);
  }
  Eviction Compress(const std::string& policy, double kept) {
    return Compress(client::NamedPolicy(policy, kept));
  }
};

std::vector<int32_t> Uncompressed() { return Worker(nullptr).Generate(kSteps); }

class DecoderCompress : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(service_.Start()); }
  ServiceProcess service_{kServiceProgram};
};

TEST_F(DecoderCompress, AFullBudgetChangesNothing) {
  Worker worker(&service_);
  const Eviction eviction = worker.Compress("snapkv", 1);
  ASSERT_EQ(eviction.outcome, client::Outcome::kApplied) << eviction.status;
  EXPECT_TRUE(eviction.result->sequences[0].noop);
  EXPECT_EQ(worker.Generate(kSteps), Uncompressed());
  EXPECT_EQ(worker.log().str(), "");
}

// ---- a fifth of the rows ----------------------------------------------------------------------

class DecoderPolicy : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_TRUE(service_.Start()); }
  ServiceProcess service_{kServiceProgram};
};

TEST_P(DecoderPolicy, DecodesWhatTheMaskedModelDecodes) {
  const std::string policy = GetParam();
  Worker worker(&service_, WantedBy(policy));
  const Eviction eviction = worker.Compress(policy, 0.2);
  ASSERT_EQ(eviction.outcome, client::Outcome::kApplied) << eviction.status;
  PlainDecoder masked = Float64().model;
  worker.Mask(masked, eviction.result->sequences[0].kept_sets);

  const ModelConfig& config = Model().config;
  size_t rows = 0;
  for (uint32_t l = 0; l < config.layers; ++l) {
    for (uint32_t h = 0; h < config.kv_heads; ++h) rows += worker.decoder().kv().rows(l, h);
  }
  EXPECT_EQ(rows, size_t{kKept} * config.layers * config.kv_heads);
  const bool unequal = policy.starts_with("adakv") || policy == "pyramidkv";
  EXPECT_EQ(worker.decoder().kv().even(), !unequal);

  worker.ExpectSameSteps(masked, kSteps);
  EXPECT_EQ(worker.log().str(), "");
}

TEST_F(DecoderCompress, EvictsAgainAfterSomeSteps) {
  Worker worker(&service_);
  PlainDecoder masked = Float64().model;
  Eviction eviction = worker.Compress("snapkv", 0.2);
  ASSERT_EQ(eviction.outcome, client::Outcome::kApplied) << eviction.status;
  worker.Mask(masked, eviction.result->sequences[0].kept_sets);
  for (const uint32_t rows : {60u, 40u}) {
    worker.ExpectSameSteps(masked, kSteps / 3);
    // The window are the queries that there have been since: eight.
    client::Policy policy = client::NamedPolicyTokens("snapkv", rows);
    policy.parts.protect = client::Protect{.recent = 16};
    eviction = worker.Compress(policy);
    ASSERT_EQ(eviction.outcome, client::Outcome::kApplied) << eviction.status;
    EXPECT_EQ(worker.decoder().kv().longest(), rows);
    worker.Mask(masked, eviction.result->sequences[0].kept_sets);
  }
  worker.ExpectSameSteps(masked, kSteps / 3);
  EXPECT_EQ(worker.log().str(), "");
}

TEST_F(DecoderCompress, HeadsOfDifferentLengthsAreNotEvictedAgain) {
  Worker worker(&service_);
  ASSERT_EQ(worker.Compress("adakv", 0.2).outcome, client::Outcome::kApplied);
  const Eviction again = worker.Compress("adakv", 0.5);
  EXPECT_EQ(again.outcome, client::Outcome::kUnchanged);
  EXPECT_EQ(again.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(worker.log().str(), "");
}

std::string NameOf(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '+' || c == '-'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Policies, DecoderPolicy,
                         testing::Values("streaming", "h2o", "tova", "snapkv", "snapkv+obc-joint",
                                         "h2o+drop", "vatp", "adakv", "pyramidkv", "criticalkv",
                                         "keydiff", "knorm", "lagkv", "expected-attention"),
                         NameOf);

// ---- the service saw what the model computed ----------------------------------------------------

Doubles Pooled(const Doubles& scores, uint32_t rows) {  // means of five, padded with zeros
  Doubles pooled = scores;
  for (int32_t p = 0; p < static_cast<int32_t>(rows); ++p) {
    double sum = 0;
    for (int32_t q = std::max(p - 2, 0); q < std::min(p + 3, static_cast<int32_t>(rows)); ++q) {
      sum += scores[static_cast<size_t>(q)];
    }
    pooled[static_cast<size_t>(p)] = sum / 5;
  }
  return pooled;
}

TEST_F(DecoderCompress, KeepsWhatFloat64AttentionKeeps) {
  const ModelConfig& config = Model().config;
  for (const char* policy : {"tova", "snapkv", "h2o", "knorm"}) {
    SCOPED_TRACE(policy);
    Worker worker(&service_, WantedBy(policy));
    const Eviction eviction = worker.Compress(policy, 0.2);
    ASSERT_EQ(eviction.outcome, client::Outcome::kApplied) << eviction.status;
    const client::KeptSets& kept = eviction.result->sequences[0].kept_sets;
    for (uint32_t l = 0; l < config.layers; ++l) {
      for (uint32_t h = 0; h < config.kv_heads; ++h) {
        const std::vector<int32_t>& rows = kept.At(l, h);
        ASSERT_EQ(rows.size(), kKept);
        if (policy == std::string("tova")) {  // one set for all heads
          Doubles sum = Float64().last[l][0];
          for (size_t p = 0; p < kPrompt; ++p) sum[p] += Float64().last[l][1][p];
          ExpectBest(rows, sum, 1);
        } else if (policy == std::string("snapkv")) {
          ExpectBest(rows, Pooled(Float64().window[l][h], kPrompt - 64), 64);
        } else if (policy == std::string("h2o")) {
          ExpectBest(rows, Float64().all[l][h], kKept / 2);
        } else {
          Doubles norms(kPrompt);
          for (size_t i = 0; i < Float64().model.Keys(l, h).size(); ++i) {
            const double key = Float64().model.Keys(l, h)[i];
            norms[i / config.head_size] -= key * key;
          }
          ExpectBest(rows, norms, 0);
        }
      }
    }
  }
}

// ---- the service dies ---------------------------------------------------------------------------

struct KillPoint {
  const char* fault;
  client::Outcome outcome;
};
void PrintTo(const KillPoint& point, std::ostream* out) { *out << point.fault; }

class DecoderKilled : public testing::TestWithParam<KillPoint> {};

TEST_P(DecoderKilled, GoesOnAsTheFateSays) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({std::string("--fault=") + GetParam().fault}));
  Worker worker(&service);
  const Eviction eviction = worker.Compress("snapkv", 0.2);
  EXPECT_EQ(service.process().WaitExit(), 128 + SIGKILL);
  EXPECT_EQ(client::OutcomeName(eviction.outcome), client::OutcomeName(GetParam().outcome));
  EXPECT_FALSE(eviction.result.has_value());
  EXPECT_NE(worker.log().str(), "") << "an engine says that it goes on without a compressed cache";
  if (GetParam().outcome != client::Outcome::kApplied) {
    EXPECT_EQ(worker.decoder().kv().longest(), kPrompt);
    EXPECT_EQ(worker.Generate(kSteps), Uncompressed());
    return;
  }
  EXPECT_EQ(worker.decoder().kv().longest(), kKept);
  ServiceProcess another(kServiceProgram);
  ASSERT_TRUE(another.Start());
  Worker undisturbed(&another);
  ASSERT_EQ(undisturbed.Compress("snapkv", 0.2).outcome, client::Outcome::kApplied);
  EXPECT_EQ(worker.Generate(kSteps), undisturbed.Generate(kSteps));
}

std::string NameOfPoint(const testing::TestParamInfo<KillPoint>& info) {
  std::string name = info.param.fault;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == ':'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Phases, DecoderKilled,
    testing::Values(KillPoint{"lane.after_select:kill", client::Outcome::kUnchanged},
                    KillPoint{"move.mid_rows:kill", client::Outcome::kDamaged},
                    KillPoint{"ledger.after_done:kill:2", client::Outcome::kDamaged},
                    KillPoint{"ledger.after_closed:kill", client::Outcome::kApplied}),
    NameOfPoint);

TEST(DecoderAlone, GoesOnWhenTheServiceIsGone) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start());
  Worker worker(&service);
  service.process().Signal(SIGKILL);
  EXPECT_EQ(service.process().WaitExit(), 128 + SIGKILL);
  const Eviction eviction = worker.Compress("snapkv", 0.2);
  EXPECT_NE(eviction.outcome, client::Outcome::kApplied);
  EXPECT_NE(worker.log().str(), "");
  EXPECT_EQ(worker.Generate(kSteps), Uncompressed());
}

}  // namespace
}  // namespace kvtriage::decoder
