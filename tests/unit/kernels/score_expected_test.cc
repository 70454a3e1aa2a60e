// Expected Attention against plain float64 loops: every instruction set, layout and input type,
// from queries and from their moments, with every kind of rotary part.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/rope_speeds.h"
#include "kernels/cpu/score.h"
#include "tests/support/each_target.h"
#include "tests/support/golden_inputs.h"
#include "tests/support/plain_expected.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void SetElement(DenseTensor& tensor, uint32_t row, uint32_t head, uint32_t elem, float value) {
  std::memcpy(const_cast<std::byte*>(tensor.view.At(row, head, elem)), &value, sizeof(value));
}

Rope RopeOf(RopePairing pairing, uint32_t dim, uint32_t offset, double factor = 1) {
  Rope rope;
  rope.pairing = pairing;
  rope.rotary_dim = dim;
  rope.offset = offset;
  rope.speeds = RopeSpeeds({.theta = 10000}, dim);
  rope.attention_factor = factor;
  return rope;
}

class Expected : public testing::Test {
 protected:
  // All rows have a query, from before RoPE.
  void Make(const ProblemShape& shape, DType type = DType::kF32) {
    problem_ = std::make_unique<ScoreProblem>(shape, 31);
    const std::vector<float> q = GridValues(31007, size_t{shape.q_heads} * shape.tokens * shape.dk);
    q_ = MakeTensor(std::vector<double>(q.begin(), q.end()), shape.q_heads, shape.tokens, shape.dk,
                    type, true);
  }

  ScoreRequest FromQueries(const Rope* rope) {
    ScoreRequest request;
    request.layer = problem_->layer();
    request.input.scale = problem_->scale();
    request.input.source = AttentionSource::kQuery;
    request.input.q = q_.view;
    request.spec = {.scorer = Scorer::kExpectedAttention,
                    .reduce = Reduce::kMean,
                    .future = 40,
                    .epsilon = 1e-3};
    request.sinks = 3;
    request.rope = rope;
    request.next_position = 100;
    return request;
  }

  ScoreRequest FromMoments(const Rope* rope) {
    ScoreRequest request = FromQueries(rope);
    const PlainMoments moments = PlainQueryMoments(q_.view, request.sinks);
    const uint32_t heads = q_.view.heads, size = q_.view.elems;
    mean_ = MakeTensor(moments.mean, heads, 1, size, DType::kF32, true);
    covariance_ = MakeTensor(moments.covariance, heads, size, size, DType::kF32, true);
    request.input.source = AttentionSource::kNone;
    request.input.q = {};
    request.input.query_mean = mean_.view;
    request.input.query_covariance = covariance_.view;
    return request;
  }

  std::vector<double> Plain(const ScoreRequest& request) {
    return PlainExpectedScores(request, PlainQueryMoments(q_.view, request.sinks));
  }

  static ScoreResult Score(const ScoreRequest& request, int threads = 2) {
    ThreadTeam team(threads);
    ScoreResult result;
    const absl::Status status = ScoreLayer(request, team, result);
    EXPECT_TRUE(status.ok()) << status;
    return result;
  }

  static void ExpectNear(const std::vector<float>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    double largest = 0;
    for (const double x : want) largest = std::isnan(x) ? largest : std::max(largest, x);
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_NEAR(got[i], want[i], 2e-5 * largest) << i;
      }
    }
  }

  std::unique_ptr<ScoreProblem> problem_;
  DenseTensor q_, mean_, covariance_;
};

TEST_F(Expected, IsThePlainLoopsWithEveryRotaryPart) {
  Make({4, 2, 70, 1, 16, 10});
  const Rope ropes[] = {RopeOf(RopePairing::kHalf, 16, 0), RopeOf(RopePairing::kInterleaved, 16, 0),
                        RopeOf(RopePairing::kHalf, 6, 4), RopeOf(RopePairing::kHalf, 16, 0, 1.2)};
  for (const Rope* rope :
       {&ropes[0], &ropes[1], &ropes[2], &ropes[3], static_cast<const Rope*>(nullptr)}) {
    for (const bool moments : {false, true}) {
      const ScoreRequest request = moments ? FromMoments(rope) : FromQueries(rope);
      const std::vector<double> want = Plain(request);
      ForEachTarget([&] { ExpectNear(Score(request).scores, want); });
      ASSERT_FALSE(HasFailure()) << "rope " << (rope - ropes) << ", moments " << moments;
    }
  }
}

TEST_F(Expected, IsThePlainLoopsOnEveryLayoutAndType) {
  const Rope rope = RopeOf(RopePairing::kHalf, 8, 0);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    Make({3, 1, 131, 1, 9, 17}, type);  // sizes that no tile divides
    for (const CacheLayout& layout : kCacheLayouts) {
      problem_->Place(layout, type);
      const ScoreRequest request = FromQueries(&rope);
      ExpectNear(Score(request).scores, Plain(request));
      ASSERT_FALSE(HasFailure()) << layout.name;
    }
  }
}

TEST_F(Expected, ThreadsDoNotChangeABit) {
  Make({4, 2, 3000, 1, 8, 8});
  const Rope rope = RopeOf(RopePairing::kHalf, 8, 0);
  const ScoreRequest request = FromQueries(&rope);
  EXPECT_TRUE(SameBits(Score(request, 1).scores, Score(request, 5).scores));
}

TEST_F(Expected, BadRowsAndBadQueriesAreLeftOut) {
  Make({2, 1, 60, 1, 8, 8});
  problem_->k()[20 * 8] = kNaN;
  problem_->v()[1 * 8] = std::numeric_limits<float>::infinity();  // a sink
  problem_->Place(kCacheLayouts[0], DType::kF32);
  SetElement(q_, 30, 1, 2, kNaN);
  const Rope rope = RopeOf(RopePairing::kHalf, 8, 0);
  const ScoreRequest request = FromQueries(&rope);
  const ScoreResult result = Score(request);
  ExpectNear(result.scores, Plain(request));
  EXPECT_EQ(result.nonfinite_tokens, 2u);
  EXPECT_EQ(result.skipped_rows, 1u);
  EXPECT_EQ(result.scores[0], 0.0f);
}

TEST_F(Expected, AHeadWithoutFiniteQueriesIsRefused) {
  Make({2, 2, 30, 1, 8, 8});
  ScoreRequest request = FromMoments(nullptr);
  SetElement(mean_, 0, 1, 3, kNaN);
  ThreadTeam team(1);
  ScoreResult result;
  const auto info = GetErrorInfo(ScoreLayer(request, team, result));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kNoUsableRow);
  EXPECT_EQ(info->index, 1u);
}

TEST_F(Expected, OnlySinksScoreNothing) {
  Make({2, 1, 3, 1, 8, 8});
  const ScoreRequest request = FromQueries(nullptr);
  EXPECT_EQ(Score(request).scores, std::vector<float>(3, 0.0f));
}

TEST_F(Expected, WithoutSpreadItIsTheSoftmaxOfTheMeanQuery) {
  Make({1, 1, 40, 1, 8, 8});
  ScoreRequest request = FromMoments(nullptr);
  const std::vector<double> zeros(64);
  covariance_ = MakeTensor(zeros, 1, 8, 8, DType::kF32, true);
  request.input.query_covariance = covariance_.view;
  request.spec.epsilon = 0;
  PlainMoments moments = PlainQueryMoments(q_.view, request.sinks);
  moments.covariance = zeros;
  ExpectNear(Score(request).scores, PlainExpectedScores(request, moments));
}

}  // namespace
}  // namespace kvtriage
