// The scorer's tensor-core path: that it is taken for what engines send, that it reads K and V once
// and multiplies no more than it must, and that pairs whose squares cancel are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/score_mma.h"
#include "kernels/cuda/score_mma_shape.h"
#include "tests/unit/kernels/score_device.h"

namespace kvtriage {
namespace {

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};
constexpr CacheLayout kPaged = {"paged 16 from 5", 16, false, 5};

class ScoreMma : public ScoreDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, ScoreMma, testing::Values(Device::kCuda), DeviceName);

TEST_P(ScoreMma, TakesWhatEnginesSend) {
  ScoreProblem problem({8, 2, 50, 4, 128, 128}, 9950);
  const auto type_of = [&](AttentionSource source, const ScoreSpec& spec) {
    return MmaTypeOf(problem.Request(source, spec));
  };
  problem.Place(kPaged, DType::kBF16);
  problem.SetTensors(DType::kBF16, true);
  EXPECT_EQ(type_of(AttentionSource::kQueryOutput, {.scorer = Scorer::kObcJoint}), MmaType::kBf16);
  EXPECT_EQ(type_of(AttentionSource::kQuery, {.scorer = Scorer::kAttention}), MmaType::kBf16);
  // Outputs of a first pass are float32; the largest of a group needs each head's sum.
  EXPECT_EQ(type_of(AttentionSource::kQuery, {.scorer = Scorer::kDrop}), MmaType::kNone);
  EXPECT_EQ(type_of(AttentionSource::kQueryOutput, {.reduce = Reduce::kMax}), MmaType::kNone);
  EXPECT_EQ(type_of(AttentionSource::kQueryOutput, {.reduce = Reduce::kPre}), MmaType::kNone);
  EXPECT_EQ(type_of(AttentionSource::kReady, {}), MmaType::kNone);
  problem.SetTensors(DType::kF32, true);
  EXPECT_EQ(type_of(AttentionSource::kQueryOutput, {}), MmaType::kNone);
  problem.Place(kPaged, DType::kF16);
  problem.SetTensors(DType::kF16, true);
  EXPECT_EQ(type_of(AttentionSource::kQueryOutput, {.scorer = Scorer::kObcKey}), MmaType::kF16);
  problem.set_softcap(30);
  EXPECT_EQ(type_of(AttentionSource::kQueryOutput, {}), MmaType::kNone);
}

// Sizes around tiles of tokens (128, 64) and of query rows (64, 32), head sizes around 64, 128,
// 256.
TEST_P(ScoreMma, IsThePlainLoopsForEveryShape) {
  const ProblemShape shapes[] = {
      {4, 2, 200, 16, 64, 64},  {4, 2, 129, 5, 128, 96},   {1, 1, 20, 3, 16, 16},
      {2, 1, 150, 2, 256, 256}, {14, 2, 66, 50, 128, 128}, {4, 2, 1, 1, 8, 16},
      {2, 1, 300, 40, 80, 72},  {3, 1, 127, 22, 1, 3},     {4, 1, 128, 16, 129, 65}};
  for (const DType type : kTypes) {
    for (const ProblemShape& shape : shapes) {
      SCOPED_TRACE(testing::Message() << DTypeName(type) << ", N " << shape.tokens << ", dk "
                                      << shape.dk << ", dv " << shape.dv);
      ScoreProblem problem(shape, 9960 + shape.tokens);
      problem.Place(kPaged, type);
      problem.SetTensors(type, shape.tokens % 2 == 0);
      for (const Scorer scorer : kRowScorers) {
        for (const Reduce reduce : {Reduce::kSum, Reduce::kMean}) {
          const AttentionSource source = AttentionSource::kQueryOutput;
          SCOPED_TRACE(Name(scorer, source, reduce));
          ExpectPlainScores(problem.Request(source, {.scorer = scorer, .reduce = reduce}));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(ScoreMma, RowsBeyondOneBatch) {
  if (HasTooManyFibers()) return;
  // 2 * 2100 rows of one KV head are more than one batch. Their own rows are not in the cache.
  ScoreProblem problem({2, 1, 40, 2100, 8, 8}, 9970);
  std::vector<int32_t> limits(2100);
  for (size_t row = 0; row < limits.size(); ++row) limits[row] = static_cast<int32_t>(row % 41);
  problem.set_row_limits(limits);
  problem.Place(kPaged, DType::kBF16);
  problem.SetTensors(DType::kBF16, true);
  const ScoreRequest request =
      problem.Request(AttentionSource::kQueryOutput, {.scorer = Scorer::kObcValue});
  EXPECT_EQ(Difference(Score(request), PlainScore(request)), "");
}

// Values and outputs that are the same but for their last bit: every pair is computed directly, far
// more of them than a warp's list holds.
TEST_P(ScoreMma, SquaresThatCancelAreComputedDirectly) {
  for (const DType type : kTypes) {
    const float ulp = type == DType::kBF16 ? 0.015625f : 0.001953125f;  // of numbers from 2 to 4
    ScoreProblem problem({4, 1, 150, 20, 64, 64}, 9980);
    for (size_t i = 0; i < problem.v().size(); ++i) {
      problem.v()[i] = 3.0f + ulp * static_cast<float>(i * i % 3);
    }
    problem.Place(kPaged, type);
    problem.SetTensors(type, true);
    for (const Scorer scorer : {Scorer::kObcKey, Scorer::kObcJoint, Scorer::kDrop}) {
      SCOPED_TRACE(Name(scorer, AttentionSource::kQueryOutput));
      const ScoreRequest request =
          problem.Request(AttentionSource::kQueryOutput, {.scorer = scorer});
      const ScoreResult result = Score(request);
      EXPECT_EQ(Difference(result, PlainScore(request)), "");
      for (const float score : result.scores) EXPECT_GE(score, 0.0f);
    }
  }
}

// One token that holds next to all of the weight: 1 - A decides.
TEST_P(ScoreMma, AWeightNearOneIsScoredByWhatIsLeft) {
  ScoreProblem problem({2, 1, 90, 5, 64, 64}, 9985);
  for (size_t i = 0; i < problem.q().size(); ++i) problem.q()[i] = problem.q()[i % 64];
  for (size_t c = 0; c < 64; ++c) {
    problem.k()[20 * 64 + c] = problem.q()[c] > 0 ? 0.75f : -0.75f;
  }
  problem.Place(kPaged, DType::kBF16);
  problem.SetTensors(DType::kBF16, true);
  const ScoreRequest request =
      problem.Request(AttentionSource::kQueryOutput, {.scorer = Scorer::kObcJoint});
  const ScoreResult result = Score(request);
  EXPECT_GT(*std::max_element(result.mass.begin(), result.mass.end()), 5.0f);  // of 10 rows
  EXPECT_EQ(Difference(result, PlainScore(request)), "");
}

TEST_P(ScoreMma, ReadsOnceAndMultipliesByTheFormula) {
  constexpr uint32_t kTokens = 256, kRows = 64, kHeads = 2, kGroup = 4;
  for (const uint32_t d : {64u, 128u, 256u}) {
    SCOPED_TRACE(d);
    ScoreProblem problem({kGroup * kHeads, kHeads, kTokens, kRows / kGroup, d, d}, 9990);
    problem.Place({"contiguous", 0, false, 0}, DType::kBF16);
    problem.SetTensors(DType::kBF16, true);
    const ScoreRequest request =
        problem.Request(AttentionSource::kQueryOutput, {.scorer = Scorer::kObcJoint});
    Score(request);  // makes the backend
    emulation::TakeCounters();
    Score(request);
    const emulation::Counters counted = emulation::TakeCounters();
    const uint64_t blocks = kTokens / MmaShapeOf(d).block_tokens * kHeads;
    EXPECT_EQ(counted.mma, kHeads * kTokens / 16 * (kRows / 8) * (d / 16) * 2);
    EXPECT_EQ(counted.ldmatrix_extra_passes, 0u);
    // K and V once, Q and O once per block of tokens.
    EXPECT_EQ(counted.async_copy_bytes,
              uint64_t{kHeads} * kTokens * d * 2 * 2 + blocks * kRows * d * 2 * 2);
    EXPECT_EQ(counted.grids, 2u);  // the rows are gathered, the tokens scored
  }
}

}  // namespace
}  // namespace kvtriage
