// Expected Attention against plain float64 loops: every device, instruction set, layout and input
// type, from queries and from their moments, with every kind of rotary part.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/rope_speeds.h"
#include "tests/support/each_device.h"
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

class Expected : public EachDevice {
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
KVTRIAGE_ON_EACH_DEVICE(Expected);

TEST_P(Expected, IsThePlainLoopsWithEveryRotaryPart) {
  Make({4, 2, 70, 1, 16, 10});
  const Rope ropes[] = {RopeOf(RopePairing::kHalf, 16, 0), RopeOf(RopePairing::kInterleaved, 16, 0),
                        RopeOf(RopePairing::kHalf, 6, 4), RopeOf(RopePairing::kHalf, 16, 0, 1.2)};
  for (const Rope* rope :
       {&ropes[0], &ropes[1], &ropes[2], &ropes[3], static_cast<const Rope*>(nullptr)}) {
    for (const bool moments : {false, true}) {
      const ScoreRequest request = moments ? FromMoments(rope) : FromQueries(rope);
      const std::vector<double> want = Plain(request);
      ForEachWay([&] { ExpectNear(ScoreOne(request).scores, want); });
      ASSERT_FALSE(HasFailure()) << "rope " << (rope - ropes) << ", moments " << moments;
    }
  }
}

TEST_P(Expected, IsThePlainLoopsOnEveryLayoutAndType) {
  const Rope rope = RopeOf(RopePairing::kHalf, 8, 0);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    Make({3, 1, 131, 1, 9, 17}, type);  // sizes that no tile divides
    for (const CacheLayout& layout : kCacheLayouts) {
      problem_->Place(layout, type);
      const ScoreRequest request = FromQueries(&rope);
      ExpectNear(ScoreOne(request).scores, Plain(request));
      ASSERT_FALSE(HasFailure()) << layout.name;
    }
  }
}

TEST_P(Expected, ThreadsDoNotChangeABit) {
  Make({4, 2, on_cpu() ? 3000u : 300u, 1, 8, 8});
  const Rope rope = RopeOf(RopePairing::kHalf, 8, 0);
  const ScoreRequest request = FromQueries(&rope);
  EXPECT_TRUE(SameBits(ScoreOne(request, 1).scores, ScoreOne(request, 5).scores));
}

TEST_P(Expected, LargeHeadsAreThePlainLoops) {
  Make({2, 1, 80, 1, 130, 64});  // three tiles of channels, two of tokens
  const Rope rope = RopeOf(RopePairing::kHalf, 64, 0);
  for (const bool moments : {false, true}) {
    const ScoreRequest request = moments ? FromMoments(&rope) : FromQueries(&rope);
    ExpectNear(ScoreOne(request).scores, Plain(request));
  }
}

TEST_P(Expected, QueriesFarFromZeroKeepTheirSpread) {
  Make({1, 1, 90, 1, 8, 8});
  // Numbers of which a sum of squares would keep nothing but the mean.
  for (uint32_t p = 0; p < 90; ++p) {
    for (uint32_t c = 0; c < 8; ++c) {
      SetElement(q_, p, 0, c, 4096.0f + static_cast<float>((p * 7 + c * 5) % 16) / 8);
    }
  }
  // Keys that are blind to the mean, so that the spread decides.
  for (uint32_t i = 0; i < 90 * 8; i += 2) problem_->k()[i + 1] = -(problem_->k()[i] /= 16);
  problem_->Place(kCacheLayouts[0], DType::kF32);
  ScoreRequest request = FromQueries(nullptr);
  request.input.scale = 0.125f;
  ExpectNear(ScoreOne(request).scores, Plain(request));
}

TEST_P(Expected, RequestsOfACallScoreAsAloneTogetherOrInBatches) {
  const Rope ropes[] = {RopeOf(RopePairing::kHalf, 8, 0), RopeOf(RopePairing::kInterleaved, 8, 0)};
  Make({4, 2, 40, 1, 8, 8});
  const std::vector<ScoreRequest> requests = {FromQueries(&ropes[0]), FromQueries(nullptr),
                                              FromQueries(&ropes[1]), FromMoments(&ropes[0])};
  std::vector<std::vector<float>> alone;
  for (const ScoreRequest& request : requests) alone.push_back(ScoreOne(request).scores);
  for (const uint64_t workspace : {1 << 20, 14 << 10}) {
    SetWorkspace(workspace);
    std::vector<ScoreResult> results;
    const absl::Status status = Score(requests, results);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(SameBits(results[i].scores, alone[i])) << i;
      EXPECT_EQ(results[i].skipped_rows, 0u);
    }
  }
}

TEST_P(Expected, BadRowsAndBadQueriesAreLeftOut) {
  Make({2, 1, 60, 1, 8, 8});
  problem_->k()[20 * 8] = kNaN;
  problem_->v()[1 * 8] = std::numeric_limits<float>::infinity();  // a sink
  problem_->Place(kCacheLayouts[0], DType::kF32);
  SetElement(q_, 30, 1, 2, kNaN);
  const Rope rope = RopeOf(RopePairing::kHalf, 8, 0);
  const ScoreRequest request = FromQueries(&rope);
  const ScoreResult result = ScoreOne(request);
  ExpectNear(result.scores, Plain(request));
  EXPECT_EQ(result.nonfinite_tokens, 2u);
  EXPECT_EQ(result.skipped_rows, 1u);
  EXPECT_EQ(result.scores[0], 0.0f);
}

TEST_P(Expected, AHeadWithoutFiniteQueriesIsRefused) {
  Make({2, 2, 30, 1, 8, 8});
  ScoreRequest request = FromMoments(nullptr);
  SetElement(mean_, 0, 1, 3, kNaN);
  std::vector<ScoreResult> results;
  const auto info = GetErrorInfo(Score({&request, 1}, results));
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kNoUsableRow);
  EXPECT_EQ(info->index, 1u);
}

TEST_P(Expected, OnlySinksScoreNothing) {
  Make({2, 1, 3, 1, 8, 8});
  const ScoreRequest request = FromQueries(nullptr);
  EXPECT_EQ(ScoreOne(request).scores, std::vector<float>(3, 0.0f));
}

TEST_P(Expected, WithoutSpreadItIsTheSoftmaxOfTheMeanQuery) {
  Make({1, 1, 40, 1, 8, 8});
  ScoreRequest request = FromMoments(nullptr);
  const std::vector<double> zeros(64);
  covariance_ = MakeTensor(zeros, 1, 8, 8, DType::kF32, true);
  request.input.query_covariance = covariance_.view;
  request.spec.epsilon = 0;
  PlainMoments moments = PlainQueryMoments(q_.view, request.sinks);
  moments.covariance = zeros;
  ExpectNear(ScoreOne(request).scores, PlainExpectedScores(request, moments));
}

}  // namespace
}  // namespace kvtriage
