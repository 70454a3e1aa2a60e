// Scores that need neither queries nor K: from ready-made column sums, by age, at random; and
// pooling. On every device, against plain float64 loops and by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/each_device.h"
#include "tests/support/golden_inputs.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class ScoreSums : public EachDevice {
 protected:
  void ExpectPlainScores(const ScoreRequest& request) {
    const PlainScores plain = PlainScore(request);
    ForEachWay([&] { EXPECT_EQ(Difference(ScoreOne(request), plain), ""); });
  }

  // kAttention from one list of sums.
  ScoreResult Pooled(const std::vector<double>& sums, Pool pool, uint32_t kernel, uint32_t end) {
    const auto tokens = static_cast<uint32_t>(sums.size());
    ScoreProblem problem({1, 1, tokens, 1, 4, 4}, 9941);
    const DenseTensor tensor = MakeTensor(sums, 1, 1, tokens, DType::kF32, true);
    ScoreRequest request;
    request.layer = problem.layer();
    request.spec = {.pool = pool, .pool_kernel = kernel};
    request.input.source = AttentionSource::kColumnSums;
    request.input.sums = tensor.view;
    request.pool_end = end;
    return ScoreOne(request);
  }
};
KVTRIAGE_ON_EACH_DEVICE(ScoreSums);

TEST_P(ScoreSums, EveryAxisAndReduce) {
  ScoreProblem problem({6, 2, 70, 8, 16, 24}, 9910);
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMean, Reduce::kMax, Reduce::kPre}) {
    for (const Scorer scorer : {Scorer::kAttention, Scorer::kVatp}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(scorer)) + ", reduce " +
                   std::to_string(static_cast<int>(reduce)));
      ScoreRequest request =
          problem.Request(AttentionSource::kColumnSums, {.scorer = scorer, .reduce = reduce});
      ExpectPlainScores(request);
      request.input.sums_axis = HeadAxis::kKv;
      ExpectPlainScores(request);
      request.input.sums_axis = HeadAxis::kSummed;
      if (scorer == Scorer::kAttention) ExpectPlainScores(request);
    }
  }
}

TEST_P(ScoreSums, ValuesOfEveryTypeAndLayoutWeighThem) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    for (const CacheLayout& layout : kCacheLayouts) {
      SCOPED_TRACE(std::string(DTypeName(type)) + " " + layout.name);
      ScoreProblem problem({4, 2, 90, 3, 8, 40}, 9911);
      problem.Place(layout, type,
                    IsF8(type) ? CacheScales{0.5f, 0.25f, layout.block_slots != 0} : CacheScales{});
      ExpectPlainScores(problem.Request(AttentionSource::kColumnSums, {.scorer = Scorer::kVatp}));
    }
  }
}

TEST_P(ScoreSums, ABadValueAndABadSumAreNaNAndChangeNoOther) {
  ScoreProblem problem({4, 2, 60, 3, 8, 8}, 9912);
  problem.v()[7 * 8 + 3] = kNaN;                                       // head 0
  problem.v()[(60 + 9) * 8] = std::numeric_limits<float>::infinity();  // head 1
  problem.Place(kCacheLayouts[0], DType::kF32);
  ScoreRequest request = problem.Request(AttentionSource::kColumnSums, {.scorer = Scorer::kVatp});
  ExpectPlainScores(request);
  EXPECT_EQ(ScoreOne(request).nonfinite_tokens, 2u);
  request.spec.scorer = Scorer::kAttention;  // reads no V
  EXPECT_EQ(ScoreOne(request).nonfinite_tokens, 0u);
  std::vector<double> sums(4 * 60, 0.5);
  sums[60 + 11] = kNaN;  // of the second head of the first group
  const DenseTensor tensor = MakeTensor(sums, 4, 1, 60, DType::kF32, true);
  request.input.sums = tensor.view;
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMean, Reduce::kMax}) {
    request.spec.reduce = reduce;
    const ScoreResult result = ScoreOne(request);
    EXPECT_EQ(result.nonfinite_tokens, 1u);
    EXPECT_TRUE(std::isnan(result.scores[11]));
    EXPECT_EQ(result.mass[11], 0.0f);
    EXPECT_EQ(result.mass[12], 1.0f);
  }
}

TEST_P(ScoreSums, WhatSumsCannotGiveIsRefused) {
  ScoreProblem problem({4, 2, 20, 3, 8, 8}, 9913);
  ScoreRequest request = problem.Request(AttentionSource::kColumnSums, {.scorer = Scorer::kVatp});
  request.input.sums_axis = HeadAxis::kSummed;
  std::vector<ScoreRequest> requests = {request, request, request};
  requests[1].spec.scorer = Scorer::kObcValue;
  requests[2].spec.scorer = Scorer::kAttention;
  requests[2].input.source = AttentionSource::kNone;
  for (const ScoreRequest& refused : requests) {
    std::vector<ScoreResult> results;
    const auto info = GetErrorInfo(Score({&refused, 1}, results));
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->reason, ErrorReason::kPolicyInvalid);
    EXPECT_EQ(info->field, "policy.scorer");
  }
}

TEST_P(ScoreSums, AgeAndChanceReadNothing) {
  for (const Scorer scorer : {Scorer::kRecency, Scorer::kRandom}) {
    ScoreProblem problem({4, 2, 300, 1, 4, 4}, 9920);
    ScoreRequest request = problem.Request(AttentionSource::kNone, {.scorer = scorer});
    request.spec.random_key = 42;
    request.layer_index = 3;
    ExpectPlainScores(request);
  }
}

TEST_P(ScoreSums, Pooling) {
  ScoreProblem problem({4, 2, 90, 12, 16, 16}, 9930);
  for (const Pool pool : {Pool::kAvg, Pool::kMax}) {
    for (const uint32_t kernel : {1u, 5u, 7u, 255u}) {
      for (const uint32_t end : {0u, 1u, 60u, 90u}) {
        ScoreRequest request =
            problem.Request(AttentionSource::kColumnSums,
                            {.scorer = Scorer::kVatp, .pool = pool, .pool_kernel = kernel});
        request.pool_end = end;
        SCOPED_TRACE(std::to_string(kernel) + " up to " + std::to_string(end));
        ExpectPlainScores(request);
      }
    }
  }
}

TEST_P(ScoreSums, PoolingByHand) {
  const std::vector<double> sums = {3, 0, 6, kNaN, 9, 30};
  const std::vector<float> average = Pooled(sums, Pool::kAvg, 3, 5).scores;
  const std::vector<float> largest = Pooled(sums, Pool::kMax, 3, 5).scores;
  const float want_average[] = {1, 3, 2, 0, 3, 30}, want_largest[] = {3, 6, 6, 0, 9, 30};
  for (size_t p = 0; p < 6; ++p) {
    EXPECT_EQ(std::isnan(average[p]), p == 3);
    EXPECT_EQ(std::isnan(largest[p]), p == 3);
    if (p == 3) continue;
    EXPECT_EQ(average[p], want_average[p]) << p;
    EXPECT_EQ(largest[p], want_largest[p]) << p;
  }
}

TEST_P(ScoreSums, ListsPoolUpToTheirOwnEnds) {
  ScoreProblem problem({2, 2, 300, 3, 4, 4}, 9931);
  ScoreRequest request =
      problem.Request(AttentionSource::kColumnSums,
                      {.scorer = Scorer::kAttention, .pool = Pool::kMax, .pool_kernel = 5});
  std::vector<float> want;
  for (const uint32_t end : {280u, 0u}) {
    request.pool_end = end;
    const ScoreResult result = ScoreOne(request);
    const size_t list = end == 0 ? 1 : 0;
    want.insert(want.end(), result.scores.begin() + static_cast<ptrdiff_t>(list * 300),
                result.scores.begin() + static_cast<ptrdiff_t>((list + 1) * 300));
  }
  request.pool_ends = {280, 0};
  EXPECT_TRUE(SameBits(ScoreOne(request).scores, want));
}

TEST_P(ScoreSums, EqualNeighbourhoodsPoolToEqualBits) {
  const std::vector<float> x = GridValues(9932, 40);
  std::vector<double> sums;
  for (int repeat = 0; repeat < 9; ++repeat) {
    for (const float value : x) sums.push_back(std::abs(value) / 3.0);
  }
  const std::vector<float> pooled = Pooled(sums, Pool::kAvg, 7, 360).scores;
  for (size_t p = 45; p < 315; ++p) EXPECT_EQ(pooled[p], pooled[p + 40]) << p;
}

}  // namespace
}  // namespace kvtriage
