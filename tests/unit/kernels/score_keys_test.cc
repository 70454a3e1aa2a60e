// Scorers that read the cache alone, and CriticalKV, against plain float64 loops: every device,
// instruction set, layout and input type, bad rows, ties, thread counts.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/each_device.h"
#include "tests/support/golden_inputs.h"
#include "tests/support/plain_keys.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr uint32_t kSinks = 3, kLag = 16;
constexpr Scorer kScorers[] = {Scorer::kKeyNorm, Scorer::kKeyDiff, Scorer::kLagKv};

ScoreRequest RequestFor(ScoreProblem& problem, Scorer scorer) {
  ScoreRequest request;
  request.layer = problem.layer();
  request.spec = {.scorer = scorer, .lag = kLag};
  request.sinks = kSinks;
  return request;
}

std::vector<double> PlainFor(const ScoreRequest& request) {
  switch (request.spec.scorer) {
    case Scorer::kKeyNorm:
      return PlainKeyNorms(request.layer);
    case Scorer::kKeyDiff:
      return PlainKeyDistances(request.layer);
    default:
      return PlainLagRanks(request.layer, request.sinks, request.spec.lag);
  }
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double x : want) largest = std::isnan(x) ? largest : std::max(largest, std::abs(x));
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_NEAR(got[i], want[i], tolerance * largest) << i;
    }
  }
}

using ScoreKeys = EachDevice;
using ScoreLagKv = EachDevice;
KVTRIAGE_ON_EACH_DEVICE(ScoreKeys);
KVTRIAGE_ON_EACH_DEVICE(ScoreLagKv);

TEST_P(ScoreKeys, AreThePlainLoopsOnEveryLayoutTypeAndTarget) {
  for (const ProblemShape& shape :
       {ProblemShape{4, 2, 130, 1, 16, 24}, ProblemShape{3, 3, 67, 1, 5, 1},
        ProblemShape{1, 1, 1, 1, 8, 8}, ProblemShape{2, 1, 51, 1, 1, 40}}) {
    ScoreProblem problem(shape, 77);
    for (const CacheLayout& layout : kCacheLayouts) {
      for (const DType type : kTypes) {
        if (kSlowFibers && !on_cpu() && type != DType::kF16) continue;
        problem.Place(layout, type);
        for (const Scorer scorer : kScorers) {
          SCOPED_TRACE(testing::Message() << layout.name << ", scorer " << static_cast<int>(scorer)
                                          << ", " << shape.tokens << " rows");
          const ScoreRequest request = RequestFor(problem, scorer);
          const std::vector<double> want = PlainFor(request);
          if (on_cpu() || (type == DType::kF16 && layout.transposed_keys)) {
            ForEachWay([&] { ExpectNear(ScoreOne(request).scores, want, 1e-5); });
          } else {
            ExpectNear(ScoreOne(request).scores, want, 1e-5);
          }
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(ScoreKeys, AreThePlainLoopsOfF8WithEveryKindOfScale) {
  ScoreProblem problem({2, 2, 75, 1, 24, 21}, 78);
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const bool per_row : {false, true}) {
      for (const CacheLayout& layout : {kCacheLayouts[1], kCacheLayouts[3]}) {
        problem.Place(layout, type, {0.25f, 0.5f, per_row});  // products are exact
        for (const Scorer scorer : kScorers) {
          SCOPED_TRACE(testing::Message() << layout.name << ", scorer " << static_cast<int>(scorer)
                                          << ", scale per row " << per_row);
          const ScoreRequest request = RequestFor(problem, scorer);
          ExpectNear(ScoreOne(request).scores, PlainFor(request), 1e-5);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(ScoreKeys, LargeHeadsAreThePlainLoops) {
  for (const uint32_t size : {128u, 320u, 576u}) {
    ScoreProblem problem({1, 1, 40, 1, size, size}, 79);
    problem.Place(kCacheLayouts[1], DType::kBF16);
    for (const Scorer scorer : kScorers) {
      SCOPED_TRACE(testing::Message() << size << ", scorer " << static_cast<int>(scorer));
      const ScoreRequest request = RequestFor(problem, scorer);
      ExpectNear(ScoreOne(request).scores, PlainFor(request), 1e-5);
    }
  }
}

TEST_P(ScoreKeys, RequestsOfACallScoreAsAlone) {
  ScoreProblem problems[] = {ScoreProblem({2, 2, 90, 1, 8, 8}, 61),
                             ScoreProblem({1, 1, 300, 1, 20, 12}, 62),
                             ScoreProblem({3, 3, 33, 1, 5, 7}, 63)};
  std::vector<ScoreRequest> requests;
  for (const Scorer scorer : kScorers) {
    for (ScoreProblem& problem : problems) requests.push_back(RequestFor(problem, scorer));
  }
  std::vector<ScoreResult> results;
  ASSERT_TRUE(Score(requests, results).ok());
  ASSERT_EQ(results.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(SameBits(results[i].scores, ScoreOne(requests[i]).scores)) << i;
  }
}

TEST_P(ScoreKeys, RequestsThatDoNotFitTogetherGoInBatches) {
  ScoreProblem problem({2, 2, 100, 1, 8, 8}, 64);
  for (const Scorer scorer : kScorers) {
    SCOPED_TRACE(static_cast<int>(scorer));
    SetWorkspace(1 << 20);
    const ScoreRequest request = RequestFor(problem, scorer);
    const ScoreResult alone = ScoreOne(request);
    SetWorkspace(6 << 10);
    const std::vector<ScoreRequest> requests(5, request);
    std::vector<ScoreResult> results;
    const absl::Status status = Score(requests, results);
    ASSERT_TRUE(status.ok()) << status;
    for (const ScoreResult& result : results) EXPECT_TRUE(SameBits(result.scores, alone.scores));
    if (on_cpu()) continue;
    SetWorkspace(1 << 10);
    const auto info = GetErrorInfo(Score(requests, results));
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->reason, ErrorReason::kDeviceMemory);
  }
}

TEST_P(ScoreKeys, LongSequencesGiveTheSameBitsForAnyThreadsAndLayout) {
  ScoreProblem problem({2, 2, on_cpu() ? 7000u : 280u, 1, 16, 8}, 5);
  for (const Scorer scorer : kScorers) {
    problem.Place(kCacheLayouts[0], DType::kBF16);
    const ScoreRequest request = RequestFor(problem, scorer);
    const ScoreResult first = ScoreOne(request, 1);
    EXPECT_TRUE(SameBits(ScoreOne(request, 3).scores, first.scores));
    if (scorer != Scorer::kLagKv) ExpectNear(first.scores, PlainFor(request), 1e-5);
    for (const CacheLayout& layout : kCacheLayouts) {
      problem.Place(layout, DType::kBF16);
      EXPECT_TRUE(SameBits(ScoreOne(RequestFor(problem, scorer), 2).scores, first.scores))
          << layout.name;
    }
  }
}

TEST_P(ScoreKeys, ABadRowIsNaNAndChangesNoOther) {
  const ProblemShape shape{2, 2, 90, 1, 8, 8};
  for (const Scorer scorer : kScorers) {
    ScoreProblem quiet(shape, 9), loud(shape, 9);
    // Rows that are bad in both, with other numbers beside the bad element.
    for (const uint32_t row : {5u, 20u, 40u, 88u}) {
      quiet.k()[row * 8] = kNaN;
      loud.k()[row * 8] = row == 20 ? -kInf : kInf;
      for (uint32_t c = 1; c < 8; ++c) loud.k()[row * 8 + c] = 1e30f;
    }
    quiet.v()[90 * 8 + 3] = kInf;  // of the second head: only LagKV reads V
    loud.v()[90 * 8 + 3] = kNaN;
    quiet.Place(kCacheLayouts[0], DType::kF32);
    loud.Place(kCacheLayouts[0], DType::kF32);
    const ScoreRequest request = RequestFor(quiet, scorer);
    const ScoreResult result = ScoreOne(request);
    EXPECT_EQ(result.nonfinite_tokens, scorer == Scorer::kLagKv ? 5u : 4u);
    ExpectNear(result.scores, PlainFor(request), 1e-5);
    EXPECT_TRUE(SameBits(ScoreOne(RequestFor(loud, scorer)).scores, result.scores));
  }
}

TEST_P(ScoreKeys, EqualRowsGetEqualScores) {
  ScoreProblem problem({1, 1, 200, 1, 12, 12}, 3);
  for (const uint32_t to : {50u, 51u, 133u, 199u}) {
    std::copy_n(problem.k().begin() + 60 * 12, 12, problem.k().begin() + to * 12);
    std::copy_n(problem.v().begin() + 60 * 12, 12, problem.v().begin() + to * 12);
  }
  problem.Place(kCacheLayouts[1], DType::kF16);
  for (const Scorer scorer : {Scorer::kKeyNorm, Scorer::kKeyDiff}) {
    const ScoreResult result = ScoreOne(RequestFor(problem, scorer));
    for (const uint32_t row : {50u, 51u, 133u, 199u}) {
      EXPECT_EQ(result.scores[row], result.scores[60]) << row;
    }
  }
}

TEST_P(ScoreKeys, AHeadAloneScoresAsAmongOthers) {
  const ProblemShape shape{3, 3, 120, 1, 8, 6};
  ScoreProblem many(shape, 21);
  const size_t k_size = 120 * 8, v_size = 120 * 6;
  for (const Scorer scorer : kScorers) {
    const ScoreResult all = ScoreOne(RequestFor(many, scorer));
    for (size_t g = 0; g < 3; ++g) {
      const auto k = many.k().begin() + static_cast<ptrdiff_t>(g * k_size);
      const auto v = many.v().begin() + static_cast<ptrdiff_t>(g * v_size);
      ScoreProblem one({1, 1, 120, 1, 8, 6}, std::vector<double>(8), {k, k + k_size},
                       {v, v + v_size});
      const std::vector<float> mine(all.scores.begin() + static_cast<ptrdiff_t>(g * 120),
                                    all.scores.begin() + static_cast<ptrdiff_t>((g + 1) * 120));
      EXPECT_TRUE(SameBits(ScoreOne(RequestFor(one, scorer)).scores, mine)) << g;
    }
  }
}

TEST_P(ScoreKeys, RotatingAllKeysOfAPairKeepsTheirNorms) {
  ScoreProblem problem({1, 1, 40, 1, 2, 2}, 8);
  problem.Place(kCacheLayouts[0], DType::kF32);
  const ScoreResult before = ScoreOne(RequestFor(problem, Scorer::kKeyNorm));
  for (uint32_t p = 0; p < 40; ++p) {
    const float a = problem.k()[2 * p], b = problem.k()[2 * p + 1], angle = 0.1f * p;
    problem.k()[2 * p] = a * std::cos(angle) - b * std::sin(angle);
    problem.k()[2 * p + 1] = b * std::cos(angle) + a * std::sin(angle);
  }
  problem.Place(kCacheLayouts[0], DType::kF32);
  const ScoreResult after = ScoreOne(RequestFor(problem, Scorer::kKeyNorm));
  for (uint32_t p = 0; p < 40; ++p) EXPECT_NEAR(after.scores[p], before.scores[p], 1e-5);
}

TEST_P(ScoreLagKv, PartitionsOfEqualRowsRankTheEarlierBetter) {
  ScoreProblem problem({1, 1, 11, 1, 4, 4}, std::vector<double>(4), std::vector<float>(44, 1.0f),
                       std::vector<float>(44, 2.0f));
  problem.Place(kCacheLayouts[0], DType::kF32);
  ScoreRequest request = RequestFor(problem, Scorer::kLagKv);
  request.sinks = 2;
  request.spec.lag = 3;
  EXPECT_EQ(ScoreOne(request).scores,
            (std::vector<float>{1, 1, 2.0f / 3, 1.0f / 3, 0, 2.0f / 3, 1.0f / 3, 0, 1, 1, 1}));
  request.sinks = 6;  // less than two partitions: the newest are best
  EXPECT_EQ(ScoreOne(request).scores, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(LagTailRows, AreTheLastPartitionAndTheRest) {
  EXPECT_EQ(LagTail(11, 2, 3), 3u);
  EXPECT_EQ(LagTail(13, 2, 3), 5u);
  EXPECT_EQ(LagTail(8, 2, 3), 3u);
  EXPECT_EQ(LagTail(7, 2, 3), 0u);
  EXPECT_EQ(LagTail(0, 4, 128), 0u);
  EXPECT_EQ(LagTail(1u << 24, 0xFFFFFFFF, 0xFFFFFFFF), 0u);
}

TEST_P(ScoreLagKv, HugeNumbersKeepATotalOrder) {
  const ProblemShape shape{1, 1, 48, 1, 4, 4};
  ScoreProblem problem(shape, 4);
  for (uint32_t p = 0; p < 16; ++p) problem.k()[p * 4] = p % 2 == 0 ? 3e38f : -3e38f;
  for (uint32_t p = 16; p < 48; ++p) problem.k()[p * 4] = 1e-38f * static_cast<float>(p);
  problem.Place(kCacheLayouts[0], DType::kF32);
  ScoreRequest request = RequestFor(problem, Scorer::kLagKv);
  request.sinks = 0;
  const ScoreResult result = ScoreOne(request);
  std::vector<float> first(result.scores.begin(), result.scores.begin() + 16);
  std::sort(first.begin(), first.end());
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(first[i], static_cast<float>(i) / 16);
}

// ---- CriticalKV

class Critical : public EachDevice {
 protected:
  Critical() : problem_({6, 2, 75, 9, 16, 24}, 12) { Project(DType::kBF16); }

  // Makes W_O for the problem's shape.
  void Project(DType type) {
    const uint32_t heads = problem_.shape().q_heads, size = problem_.shape().dv;
    const std::vector<float> w = GridValues(12004, size_t{heads} * kHidden * size);
    projection_ =
        MakeTensor(std::vector<double>(w.begin(), w.end()), heads, kHidden, size, type, true);
  }

  ScoreRequest Request(AttentionSource source) {
    ScoreRequest request = problem_.Request(
        source, {.scorer = Scorer::kCritical, .reduce = Reduce::kMean, .epsilon = kEpsilon});
    request.input.output_projection = projection_.view;
    return request;
  }

  static constexpr uint32_t kHidden = 131;  // no multiple of any tile
  static constexpr double kEpsilon = 1e-3;
  ScoreProblem problem_;
  DenseTensor projection_;
};
KVTRIAGE_ON_EACH_DEVICE(Critical);

TEST_P(Critical, FirstScoresAreTheMeanAttentionAndSecondOnesWeighIt) {
  for (const CacheLayout& layout : kCacheLayouts) {
    problem_.Place(layout, DType::kF16);
    for (const AttentionSource source :
         {AttentionSource::kQuery, AttentionSource::kQueryOutput, AttentionSource::kReady}) {
      ScoreRequest request = Request(source);
      ScoreRequest votes = request;
      votes.spec = {.scorer = Scorer::kAttention, .reduce = Reduce::kMean};
      std::vector<double> want = PlainScore(votes).scores;
      const std::vector<double> norms =
          PlainProjectedNorms(request.layer, request.input.output_projection);
      for (double& score : want) score /= 9;
      std::vector<double> second;
      for (size_t i = 0; i < want.size(); ++i) second.push_back((want[i] + kEpsilon) * norms[i]);
      ForEachWay([&] {
        const ScoreResult result = ScoreOne(request);
        ExpectNear(result.scores, want, 2e-5);
        ExpectNear(result.second_scores, second, 2e-5);
      });
      if (HasFailure()) return;
    }
  }
}

// Query head h owns columns h*dv .. of W_O. https://github.com/nntile/nntile/pull/347
TEST_P(Critical, HeadsOwnTheirColumnsOfTheProjection) {
  ScoreProblem problem({4, 2, 2, 1, 2, 2}, std::vector<double>(8, 0.0), std::vector<float>(8, 0.0f),
                       {1, 0, 0, 1, 1, 0, 0, 1});
  ScoreRequest request = problem.Request(AttentionSource::kQuery,
                                         {.scorer = Scorer::kCritical, .reduce = Reduce::kMean});
  const DenseTensor projection =
      MakeTensor(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}, 4, 1, 2, DType::kF32, true);
  request.input.output_projection = projection.view;
  const ScoreResult result = ScoreOne(request);
  const float want[] = {1, 2, 5, 6};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(result.second_scores[i], want[i] * result.scores[i]) << i;
  }
}

// Values and weights of one 16-bit type or not, head sizes around what tensor cores take.
TEST_P(Critical, ProjectsEveryTypeAndHeadSize) {
  struct Types {
    DType cache, weights;
  };
  const Types all[] = {{DType::kBF16, DType::kBF16},
                       {DType::kF16, DType::kF16},
                       {DType::kF16, DType::kBF16},
                       {DType::kF32, DType::kF32},
                       {DType::kF8E4M3, DType::kBF16}};
  for (const uint32_t size : {8u, 24u, 64u, 72u, 128u, 136u, 21u}) {
    if (kSlowFibers && !on_cpu() && size != 24 && size != 128) continue;
    problem_ = ScoreProblem({2, 1, 140, 1, 8, size}, 13);
    for (const Types& types : all) {
      SCOPED_TRACE(testing::Message() << size << " of " << DTypeName(types.cache) << " with "
                                      << DTypeName(types.weights));
      if (size > 128 && types.cache != DType::kBF16) continue;
      problem_.Place(kCacheLayouts[1], types.cache, {0.5f, 0.25f, true});
      Project(types.weights);
      const ScoreRequest request = Request(AttentionSource::kQuery);
      const std::vector<double> norms =
          PlainProjectedNorms(request.layer, request.input.output_projection);
      const ScoreResult result = ScoreOne(request);
      std::vector<double> second;
      for (size_t i = 0; i < norms.size(); ++i) {
        second.push_back((result.scores[i] + kEpsilon) * norms[i]);
      }
      ExpectNear(result.second_scores, second, 1e-5);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Critical, EqualRowsGetEqualScoresInBothStages) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    problem_ = ScoreProblem({2, 1, 140, 3, 8, 64}, 14);
    for (const uint32_t to : {1u, 9u, 40u, 66u, 129u}) {
      std::copy_n(problem_.k().begin() + 20 * 8, 8, problem_.k().begin() + to * 8);
      std::copy_n(problem_.v().begin() + 20 * 64, 64, problem_.v().begin() + to * 64);
    }
    problem_.Place(kCacheLayouts[1], type);
    Project(type);
    const ScoreResult result = ScoreOne(Request(AttentionSource::kQuery));
    for (const uint32_t row : {1u, 9u, 40u, 66u, 129u}) {
      EXPECT_EQ(result.scores[row], result.scores[20]) << row;
      EXPECT_EQ(result.second_scores[row], result.second_scores[20]) << row;
    }
  }
}

TEST_P(Critical, BadRowsAreNaNInBothStages) {
  problem_.v()[4 * 24] = kInf;
  problem_.k()[(75 + 7) * 16] = kNaN;
  problem_.Place(kCacheLayouts[0], DType::kF32);
  ScoreRequest request = Request(AttentionSource::kQuery);
  request.spec.pool = Pool::kAvg;
  request.spec.pool_kernel = 5;
  const ScoreResult result = ScoreOne(request);
  EXPECT_EQ(result.nonfinite_tokens, 2u);
  for (size_t i = 0; i < result.scores.size(); ++i) {
    EXPECT_EQ(std::isnan(result.scores[i]), i == 4 || i == 82) << i;
    EXPECT_EQ(std::isnan(result.second_scores[i]), i == 4 || i == 82) << i;
  }
}

TEST_P(Critical, ThreadsDoNotChangeABit) {
  problem_.Place(kCacheLayouts[0], DType::kBF16);
  const ScoreRequest request = Request(AttentionSource::kQueryOutput);
  const ScoreResult one = ScoreOne(request, 1), many = ScoreOne(request, 5);
  EXPECT_TRUE(SameBits(one.scores, many.scores));
  EXPECT_TRUE(SameBits(one.second_scores, many.second_scores));
}

TEST_P(Critical, WithoutAProjectionItSaysSo) {
  problem_.Place(kCacheLayouts[0], DType::kF32);
  ScoreRequest request = Request(AttentionSource::kQuery);
  request.input.output_projection = {};
  std::vector<ScoreResult> results;
  const auto info = GetErrorInfo(Score({&request, 1}, results));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kFieldMissing);
  EXPECT_EQ(info->field, "inputs.output_projection");
}

}  // namespace
}  // namespace kvtriage
