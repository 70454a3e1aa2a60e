#include "kvtriage/kernels/quality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/each_device.h"
#include "tests/support/plain_quality.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

constexpr AttentionSource kSources[] = {AttentionSource::kQuery, AttentionSource::kQueryOutput,
                                        AttentionSource::kReady};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<std::vector<int32_t>> RandomKept(uint32_t heads, uint32_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<int32_t>> kept(heads);
  for (auto& list : kept) {
    const uint32_t share = 1 + random() % 9;
    for (uint32_t p = 0; p < tokens; ++p) {
      if (random() % 10 < share) list.push_back(static_cast<int32_t>(p));
    }
  }
  return kept;
}

// The request of a problem; spans refer to `kept`.
QualityRequest MakeRequest(ScoreProblem& problem, AttentionSource source,
                           const std::vector<std::vector<int32_t>>& kept) {
  const ScoreRequest score = problem.Request(source, {.scorer = Scorer::kDrop});
  return {score.layer, score.input, {kept.begin(), kept.end()}};
}

void ExpectNear(const QualityResult& got, const QualityResult& want) {
  ASSERT_EQ(got.heads.size(), want.heads.size());
  for (size_t h = 0; h < want.heads.size(); ++h) {
    SCOPED_TRACE(testing::Message() << "head " << h);
    EXPECT_EQ(got.heads[h].usable_rows, want.heads[h].usable_rows);
    EXPECT_NEAR(got.heads[h].mass_mean, want.heads[h].mass_mean, 1e-5);
    EXPECT_NEAR(got.heads[h].mass_low, want.heads[h].mass_low, 1e-5);
    EXPECT_NEAR(got.heads[h].error_high, want.heads[h].error_high, 1e-5);
    EXPECT_NEAR(got.heads[h].error(), want.heads[h].error(), 1e-5);
    EXPECT_NEAR(got.heads[h].output_squares, want.heads[h].output_squares,
                1e-5 * want.heads[h].output_squares);
  }
  EXPECT_EQ(got.lse_suspect, want.lse_suspect);
}

void ExpectSame(const QualityResult& a, const QualityResult& b) {
  ASSERT_EQ(a.heads.size(), b.heads.size());
  for (size_t h = 0; h < a.heads.size(); ++h) {
    EXPECT_EQ(a.heads[h].usable_rows, b.heads[h].usable_rows);
    EXPECT_EQ(a.heads[h].mass_mean, b.heads[h].mass_mean);
    EXPECT_EQ(a.heads[h].error_squares, b.heads[h].error_squares);
    EXPECT_EQ(a.heads[h].output_squares, b.heads[h].output_squares);
  }
}

// Query rows of the larger problems.
constexpr uint32_t kManyRows = kSlowFibers ? 6 : 40;

class MeasureTest : public EachDevice {
 protected:
  using EachDevice::Measure;

  QualityResult Measure(const QualityRequest& request, int threads = 2) {
    std::vector<QualityResult> results;
    const absl::Status status = EachDevice::Measure({&request, 1}, results, threads);
    EXPECT_TRUE(status.ok()) << status;
    return results.at(0);
  }

  // Of cases numbered from 1, those that this build can afford.
  bool Affords(uint64_t number) const {
    return on_cpu() || (number - 1) % (5 * (100 / Repeats(100))) == 0;
  }
};
KVTRIAGE_ON_EACH_DEVICE(MeasureTest);

TEST_P(MeasureTest, EqualsFloat64InEveryLayoutTypeAndSource) {
  uint64_t number = 0;
  for (const ProblemShape& shape :
       {ProblemShape{},
        {.q_heads = 6, .kv_heads = 1, .tokens = 150, .rows = 9, .dk = 24, .dv = 8},
        {.q_heads = 3, .kv_heads = 3, .tokens = 70, .rows = 70, .dk = 5, .dv = 33},
        {.q_heads = 2, .kv_heads = 2, .tokens = 5, .rows = 8, .dk = 16, .dv = 16}}) {
    for (const CacheLayout& layout : kCacheLayouts) {
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const AttentionSource source : kSources) {
          if (!Affords(++number)) continue;
          SCOPED_TRACE(testing::Message() << "problem " << number << " " << layout.name << " "
                                          << DTypeName(type) << " source " << int(source));
          ScoreProblem problem(shape, 700 + number);
          problem.Place(layout, type);
          const auto kept = RandomKept(shape.kv_heads, shape.tokens, static_cast<uint32_t>(number));
          const QualityRequest request = MakeRequest(problem, source, kept);
          ExpectNear(Measure(request), PlainQuality(request));
        }
      }
    }
  }
}

TEST_P(MeasureTest, EveryWay) {
  ScoreProblem problem(
      {.q_heads = 8, .kv_heads = 2, .tokens = 333, .rows = kManyRows, .dk = 64, .dv = 80}, 55);
  const auto kept = RandomKept(2, 333, 3);
  for (const AttentionSource source : kSources) {
    const QualityRequest request = MakeRequest(problem, source, kept);
    const QualityResult plain = PlainQuality(request);
    ForEachWay([&] { ExpectNear(Measure(request), plain); });
  }
}

TEST_P(MeasureTest, CapsSlopesSinksAndSlidingWindows) {
  ScoreProblem problem(
      {.q_heads = 4, .kv_heads = 2, .tokens = 230, .rows = kManyRows, .dk = 16, .dv = 24}, 57);
  const auto kept = RandomKept(2, 230, 5);
  const auto expect_plain = [&](const char* what) {
    for (const AttentionSource source : kSources) {
      SCOPED_TRACE(testing::Message() << what << ", source " << int(source));
      const QualityRequest request = MakeRequest(problem, source, kept);
      const QualityResult plain = PlainQuality(request);
      if (on_cpu()) {
        ForEachTarget([&] { ExpectNear(Measure(request), plain); });
      } else {
        ExpectNear(Measure(request), plain);
      }
    }
  };
  problem.set_softcap(2);
  expect_plain("softcap");
  problem.set_alibi_slopes({0.5, 0.25, 0.125, 0.01});
  expect_plain("softcap and slopes");
  problem.set_softcap(0);
  expect_plain("slopes");
  problem.set_sink_logits({-std::numeric_limits<double>::infinity(), 0.7, 2, 5});
  expect_plain("slopes and sinks");
  problem.set_alibi_slopes({});
  problem.set_sliding_window(33);
  expect_plain("sinks and a sliding window");
  const Rope rope{.pairing = RopePairing::kInterleaved,
                  .rotary_dim = 4,
                  .offset = 2,
                  .speeds = {1.0, 0.01},
                  .attention_factor = 1.2};
  problem.set_rotation({.rope = &rope, .first = 230 - kManyRows});
  expect_plain("queries from before RoPE");
}

TEST_P(MeasureTest, ScaledRowsOfF8) {
  ScoreProblem problem({.q_heads = 4, .kv_heads = 2, .tokens = 90, .rows = 6, .dk = 16, .dv = 24},
                       61);
  const auto kept = RandomKept(2, 90, 8);
  uint64_t number = 0;
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const CacheScales& scales :
         {CacheScales{}, CacheScales{0.25f, 0.75f, false}, CacheScales{0.3f, 1.7f, true}}) {
      for (const CacheLayout& layout : kCacheLayouts) {
        if (!Affords(++number)) continue;
        SCOPED_TRACE(testing::Message() << "problem " << number << " " << layout.name << " "
                                        << DTypeName(type) << " " << scales.per_row);
        problem.Place(layout, type, scales);
        const QualityRequest request = MakeRequest(problem, AttentionSource::kQuery, kept);
        ExpectNear(Measure(request), PlainQuality(request));
      }
    }
  }
}

// Wide heads, and V inside K (MLA).
TEST_P(MeasureTest, WideRows) {
  uint64_t number = 0;
  for (const ProblemShape& shape :
       {ProblemShape{.q_heads = 5, .kv_heads = 1, .tokens = 40, .rows = 2, .dk = 576, .dv = 512},
        ProblemShape{.q_heads = 4, .kv_heads = 2, .tokens = 70, .rows = 3, .dk = 200, .dv = 130},
        ProblemShape{.q_heads = 2, .kv_heads = 2, .tokens = 50, .rows = 3, .dk = 64, .dv = 260}}) {
    SCOPED_TRACE(testing::Message() << "problem " << ++number);
    ScoreProblem problem(shape, 800 + number);
    problem.Place(kCacheLayouts[1], DType::kBF16);
    const auto kept = RandomKept(shape.kv_heads, shape.tokens, 11);
    for (const AttentionSource source : kSources) {
      const QualityRequest request = MakeRequest(problem, source, kept);
      ExpectNear(Measure(request), PlainQuality(request));
    }
    QualityRequest request = MakeRequest(problem, AttentionSource::kQuery, kept);
    request.layer.v = request.layer.k;
    request.layer.v.layout.row_elems = std::min(shape.dk, shape.dv);
    ExpectNear(Measure(request), PlainQuality(request));
  }
}

// Long enough that sums are joined several times; windows that begin anywhere.
TEST_P(MeasureTest, LongSequences) {
  ScoreProblem problem({.q_heads = 2, .kv_heads = 1, .tokens = 1700, .rows = 5, .dk = 8, .dv = 12},
                       62);
  const auto kept = RandomKept(1, 1700, 12);
  for (const uint32_t sliding : {0u, 700u, 3u}) {
    problem.set_sliding_window(sliding);
    for (const AttentionSource source : kSources) {
      SCOPED_TRACE(testing::Message() << "sliding " << sliding << " source " << int(source));
      const QualityRequest request = MakeRequest(problem, source, kept);
      ExpectNear(Measure(request), PlainQuality(request));
    }
  }
}

// Whatever else is in the call, and whoever else is in its tiles.
TEST_P(MeasureTest, ALayerGivesTheSameBitsAloneAndInAnyCompany) {
  ScoreProblem one({.q_heads = 4, .kv_heads = 2, .tokens = 90, .rows = 11, .dk = 24, .dv = 16}, 63);
  ScoreProblem two({.q_heads = 3, .kv_heads = 3, .tokens = 40, .rows = 2, .dk = 130, .dv = 8}, 64);
  ScoreProblem three({.q_heads = 2, .kv_heads = 1, .tokens = 9, .rows = 9, .dk = 8, .dv = 40}, 65);
  const auto kept_one = RandomKept(2, 90, 1), kept_two = RandomKept(3, 40, 2),
             kept_three = RandomKept(1, 9, 3);
  const std::vector<QualityRequest> requests = {
      MakeRequest(one, AttentionSource::kQuery, kept_one),
      MakeRequest(two, AttentionSource::kQueryOutput, kept_two),
      MakeRequest(three, AttentionSource::kReady, kept_three)};
  ForEachWay([&] {
    std::vector<QualityResult> together;
    ASSERT_TRUE(EachDevice::Measure(requests, together, 2).ok());
    ASSERT_EQ(together.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      const QualityResult alone = Measure(requests[i]);
      ExpectNear(alone, PlainQuality(requests[i]));
      ExpectSame(alone, together[i]);
    }
  });
}

// A sink stays where rows go: with all rows kept nothing is lost.
TEST_P(MeasureTest, ALearnedSinkIsNoError) {
  ScoreProblem problem({.q_heads = 2, .kv_heads = 1, .tokens = 50, .rows = 4, .dk = 16, .dv = 8},
                       59);
  std::vector<std::vector<int32_t>> kept(1, std::vector<int32_t>(50));
  std::iota(kept[0].begin(), kept[0].end(), 0);
  problem.set_sink_logits({3, 3});
  for (const AttentionSource source : kSources) {
    const QualityResult result = Measure(MakeRequest(problem, source, kept));
    EXPECT_LT(result.heads[0].mass_mean, 0.9);
    EXPECT_LT(result.heads[0].error_high, 1e-5);
  }
}

// Rows of A add up to what the sink leaves over, which no one but the model knows.
TEST_P(MeasureTest, WithALearnedSinkOnlyTooMuchIsSuspect) {
  ScoreProblem problem({.q_heads = 2, .kv_heads = 1, .tokens = 50, .rows = 4, .dk = 16, .dv = 8},
                       58);
  const auto kept = RandomKept(1, 50, 6);
  problem.set_sink_logits({8, 8});
  QualityRequest request = MakeRequest(problem, AttentionSource::kQueryOutput, kept);
  EXPECT_FALSE(Measure(request).lse_suspect);
  request.input.sink_logits = {};
  EXPECT_TRUE(Measure(request).lse_suspect);
  problem.set_sink_logits({});
  request = MakeRequest(problem, AttentionSource::kQueryOutput, kept);
  const DenseTensor sinks = MakeTensor(std::vector<double>{8, 8}, 2, 1, 1, DType::kF32, true);
  request.input.sink_logits = sinks.view;
  EXPECT_FALSE(Measure(request).lse_suspect);
  // Far too much weight.
  for (std::byte* at = problem.lse_tensor.bytes.data();
       at < problem.lse_tensor.bytes.data() + problem.lse_tensor.bytes.size(); at += 4) {
    StoreElement(at, DType::kF32, -20.0f);
  }
  EXPECT_TRUE(Measure(request).lse_suspect);
}

TEST_P(MeasureTest, ThreadsDoNotChangeABit) {
  ScoreProblem problem(
      {.q_heads = 8, .kv_heads = 2, .tokens = 200, .rows = kManyRows, .dk = 16, .dv = 16}, 56);
  const auto kept = RandomKept(2, 200, 4);
  for (const AttentionSource source : kSources) {
    const QualityRequest request = MakeRequest(problem, source, kept);
    const QualityResult one = Measure(request, 1);
    for (const int threads : {2, 3, 8}) {
      emulation::SetOptions({.host_threads = static_cast<uint32_t>(threads)});
      ExpectSame(Measure(request, threads), one);
    }
  }
}

// One query of 1 against keys 0, ln 2, ln 4: weights 1/7, 2/7, 4/7.
ScoreProblem HandProblem() {
  const float ln2 = 0.69314718056f;
  return ScoreProblem({.q_heads = 1, .kv_heads = 1, .tokens = 3, .rows = 1, .dk = 1, .dv = 2},
                      {1.0}, {0.0f, ln2, 2 * ln2}, {1, 0, 0, 1, 1, 1});
}

TEST_P(MeasureTest, ByHand) {
  ScoreProblem problem = HandProblem();
  for (const AttentionSource source : kSources) {
    const HeadQuality head = Measure(MakeRequest(problem, source, {{1, 2}})).heads[0];
    EXPECT_EQ(head.usable_rows, 1u);
    EXPECT_NEAR(head.mass_mean, 6.0 / 7.0, 1e-6);
    EXPECT_NEAR(head.mass_low, 6.0 / 7.0, 1e-6);
    EXPECT_NEAR(head.error(), 0.134962721696, 1e-6);
    EXPECT_NEAR(head.error_high, 0.134962721696, 1e-6);
  }
}

TEST_P(MeasureTest, KeepingAllOrNothing) {
  ScoreProblem problem({}, 12);
  std::vector<int32_t> all(64);
  std::iota(all.begin(), all.end(), 0);
  for (const AttentionSource source : kSources) {
    for (const HeadQuality& head : Measure(MakeRequest(problem, source, {all, all})).heads) {
      EXPECT_NEAR(head.mass_low, 1, 1e-6);
      EXPECT_NEAR(head.error_high, 0, 1e-5);
    }
    for (const HeadQuality& head : Measure(MakeRequest(problem, source, {{}, {}})).heads) {
      EXPECT_EQ(head.mass_mean, 0);
      EXPECT_NEAR(head.error_high, 1, 1e-6);
      EXPECT_NEAR(head.error(), 1, 1e-6);
    }
  }
}

TEST_P(MeasureTest, KeptAndEvictedPartsAddUp) {
  // o = m O_kept + (1-m) O_evicted, so the two errors stand to each other as the masses do.
  ScoreProblem problem({.q_heads = 2, .kv_heads = 2, .tokens = 90, .rows = 1, .dk = 16, .dv = 16},
                       13);
  const auto kept = RandomKept(2, 90, 9);
  std::vector<std::vector<int32_t>> evicted(2);
  for (size_t h = 0; h < 2; ++h) {
    for (int32_t p = 0; p < 90; ++p) {
      if (!std::binary_search(kept[h].begin(), kept[h].end(), p)) evicted[h].push_back(p);
    }
  }
  const QualityResult a = Measure(MakeRequest(problem, AttentionSource::kQuery, kept));
  const QualityResult b = Measure(MakeRequest(problem, AttentionSource::kQuery, evicted));
  for (size_t h = 0; h < 2; ++h) {
    const double mass = a.heads[h].mass_mean;
    EXPECT_NEAR(mass + b.heads[h].mass_mean, 1, 1e-6);
    const double scale = std::sqrt(a.heads[h].output_squares);
    EXPECT_NEAR(std::sqrt(a.heads[h].error_squares) * mass / scale,
                std::sqrt(b.heads[h].error_squares) * (1 - mass) / scale, 1e-5);
  }
}

TEST_P(MeasureTest, RowLimitsAndBaseTwo) {
  ScoreProblem problem({.q_heads = 4, .kv_heads = 2, .tokens = 60, .rows = 6, .dk = 16, .dv = 16},
                       14);
  problem.set_row_limits({60, 0, 7, 1, 59, 30});  // row 1 sees nothing
  const auto kept = RandomKept(2, 60, 5);
  for (const AttentionSource source : kSources) {
    const QualityRequest request = MakeRequest(problem, source, kept);
    const QualityResult result = Measure(request);
    ExpectNear(result, PlainQuality(request));
    EXPECT_EQ(result.heads[0].usable_rows, 10u);
  }
  QualityRequest request = MakeRequest(problem, AttentionSource::kQueryOutput, kept);
  for (size_t i = 0; i < problem.lse_tensor.bytes.size(); i += sizeof(float)) {
    std::byte* const at = problem.lse_tensor.bytes.data() + i;
    StoreElement(at, DType::kF32, LoadElement(at, DType::kF32) * 1.44269504f);
  }
  EXPECT_TRUE(Measure(request).lse_suspect);  // base e is claimed and wrong
  request.input.lse_base = LseBase::k2;
  const QualityResult right = Measure(request);
  EXPECT_FALSE(right.lse_suspect);
  ExpectNear(right, PlainQuality(request));
}

TEST_P(MeasureTest, AnAbsurdLseIsSuspect) {
  ScoreProblem problem({}, 15);
  const std::vector<std::vector<int32_t>> kept = {{0, 1}, {2}};
  QualityRequest request = MakeRequest(problem, AttentionSource::kQueryOutput, kept);
  EXPECT_FALSE(Measure(request).lse_suspect);
  for (size_t i = 0; i < problem.lse_tensor.bytes.size(); i += sizeof(float)) {
    StoreElement(problem.lse_tensor.bytes.data() + i, DType::kF32, -1e6f);
  }
  EXPECT_TRUE(Measure(request).lse_suspect);
}

TEST_P(MeasureTest, DamagedDataCountsNowhere) {
  for (const AttentionSource source : kSources) {
    SCOPED_TRACE(int(source));
    ScoreProblem problem({}, 16);
    problem.k()[5 * 16 + 3] = source == AttentionSource::kReady ? 0.0f : kNaN;
    problem.v()[(64 + 9) * 24 + 20] = -std::numeric_limits<float>::infinity();
    if (source != AttentionSource::kReady) problem.q()[7] = std::nan("");
    problem.Place(kCacheLayouts[1], DType::kF32);
    const auto kept = RandomKept(2, 64, 6);
    const QualityRequest request = MakeRequest(problem, source, kept);
    const QualityResult result = Measure(request);
    ExpectNear(result, PlainQuality(request));
    EXPECT_EQ(result.heads[1].usable_rows, 32u);
    EXPECT_EQ(result.heads[0].usable_rows, source == AttentionSource::kReady ? 32u : 31u);
  }
}

TEST_P(MeasureTest, ReadyWeightsThatAreNotNumbersLeaveTheirRowOut) {
  ScoreProblem problem({}, 17);
  const std::vector<std::vector<int32_t>> kept = {{0, 1}, {2}};
  const QualityRequest request = MakeRequest(problem, AttentionSource::kReady, kept);
  const QualityResult before = Measure(request);
  // Query head 0, row 3 of [rows][heads][tokens]; row 3 sees token 4.
  StoreElement(problem.a_tensor.bytes.data() + (3 * 4 * 64 + 4) * sizeof(float), DType::kF32, kNaN);
  const QualityResult after = Measure(request);
  EXPECT_EQ(after.heads[0].usable_rows, before.heads[0].usable_rows - 1);
  EXPECT_TRUE(std::isfinite(after.heads[0].mass_mean));
  EXPECT_EQ(after.heads[1].mass_mean, before.heads[1].mass_mean);
}

TEST_P(MeasureTest, NoUsableRowLeavesTheRestUnset) {
  ScoreProblem problem({.q_heads = 2, .kv_heads = 2, .tokens = 8, .rows = 2, .dk = 4, .dv = 4}, 18);
  for (size_t i = 0; i < 8; ++i) problem.q()[i] = std::nan("");  // all of query head 0
  const QualityResult result =
      Measure(MakeRequest(problem, AttentionSource::kQuery, {{0, 1}, {0, 1}}));
  EXPECT_EQ(result.heads[0].usable_rows, 0u);
  EXPECT_EQ(result.heads[0].mass_mean, 0);
  EXPECT_EQ(result.heads[0].error(), 0);
  EXPECT_EQ(result.heads[1].usable_rows, 2u);
}

TEST(OracleRecallTest, ByHand) {
  const std::vector<float> oracle = {5, 1, 4, 4, 4, 9};
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5};
  const auto recall = [&](std::vector<int32_t> chosen) {
    return OracleRecall(oracle, all, chosen);
  };
  EXPECT_EQ(recall({}), 1);
  EXPECT_EQ(recall({0, 5}), 1);
  EXPECT_EQ(recall({1, 5}), 0.5);
  EXPECT_EQ(recall({0, 4, 5}), 1);          // rows tied with the cut count as hits,
  EXPECT_EQ(recall({2, 3, 4}), 1.0 / 3.0);  // but no more of them than have room
  EXPECT_EQ(recall({0, 1, 2, 3, 4, 5}), 1);
  const std::vector<int32_t> some = {1, 2, 3};
  EXPECT_EQ(OracleRecall(oracle, some, std::vector<int32_t>{1}), 0);
  EXPECT_EQ(OracleRecall(oracle, some, std::vector<int32_t>{3}), 1);
}

TEST(OracleRecallTest, EqualsBruteForce) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<float> oracle(1 + random() % 60);
    for (float& x : oracle) x = random() % 9 == 0 ? kNaN : static_cast<float>(random() % 6);
    std::vector<int32_t> candidates, chosen;
    for (size_t p = 0; p < oracle.size(); ++p) {
      if (random() % 4 != 0) candidates.push_back(static_cast<int32_t>(p));
    }
    for (const int32_t p : candidates) {
      if (random() % 3 == 0) chosen.push_back(p);
    }
    const auto value = [&](int32_t p) {
      const float x = oracle[static_cast<size_t>(p)];
      return std::isnan(x) ? -1.0f : x;  // the oracle's scores are not negative
    };
    std::vector<float> sorted;
    for (const int32_t p : candidates) sorted.push_back(value(p));
    std::sort(sorted.rbegin(), sorted.rend());
    double right = 1;
    if (!chosen.empty()) {
      const float cut = sorted[chosen.size() - 1];
      const auto above = [&](const auto& list, auto get) {
        return std::count_if(list.begin(), list.end(), [&](auto x) { return get(x) > cut; });
      };
      const auto best = above(sorted, [](float x) { return x; });
      const auto hits = above(chosen, value);
      const auto ties =
          std::count_if(chosen.begin(), chosen.end(), [&](int32_t p) { return value(p) == cut; });
      const auto room = static_cast<ptrdiff_t>(chosen.size()) - best;
      right = static_cast<double>(hits + std::min<ptrdiff_t>(ties, room)) /
              static_cast<double>(chosen.size());
    }
    ASSERT_DOUBLE_EQ(OracleRecall(oracle, candidates, chosen), right) << "seed " << seed;
  }
}

TEST(PercentileTest, CountsFromOne) {
  EXPECT_EQ(Percentile({7}, 0.05), 7);
  EXPECT_EQ(Percentile({7}, 0.95), 7);
  EXPECT_EQ(Percentile({3, 1, 2, 4}, 0.5), 2);
  EXPECT_EQ(Percentile({3, 1, 2, 4}, 0.51), 3);
  EXPECT_EQ(Percentile({3, 1, 2, 4}, 0), 1);
  EXPECT_EQ(Percentile({3, 1, 2, 4}, 1), 4);
  std::vector<double> twenty(20);
  std::iota(twenty.begin(), twenty.end(), 1);
  EXPECT_EQ(Percentile(twenty, 0.95), 19);
  EXPECT_EQ(Percentile(twenty, 0.05), 1);
}

}  // namespace
}  // namespace kvtriage
