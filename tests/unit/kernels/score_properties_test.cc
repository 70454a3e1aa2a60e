// Laws that hold for every input, and inputs that have gone wrong elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/kernels/score_device.h"

namespace kvtriage {
namespace {

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float most = 0;
  for (const float x : want) most = std::max(most, std::abs(x));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * most) << i;
}

class ScoreLaws : public ScoreDevice {
 protected:
  using ScoreDevice::Score;
  ScoreResult Score(ScoreProblem& problem, const ScoreSpec& spec) {
    return Score(problem.Request(AttentionSource::kQuery, spec));
  }
};
class ScoreProperties : public ScoreLaws {};
KVTRIAGE_ON_EACH_DEVICE(ScoreProperties);
class CausalMask : public ScoreLaws {};
KVTRIAGE_ON_EACH_DEVICE(CausalMask);
class PromptShorterThanTheWindow : public ScoreLaws {};
KVTRIAGE_ON_EACH_DEVICE(PromptShorterThanTheWindow);
class StatisticsLayout : public ScoreLaws {};
KVTRIAGE_ON_EACH_DEVICE(StatisticsLayout);
class ScoreEdges : public ScoreLaws {};
KVTRIAGE_ON_EACH_DEVICE(ScoreEdges);

TEST_P(ScoreProperties, AddOverDisjointWindowRows) {
  ScoreProblem problem({4, 2, 120, 10, 16, 16}, 7000);
  for (const Scorer scorer : kRowScorers) {
    const ScoreRequest all = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
    ScoreRequest newest = all, oldest = all;
    newest.window = 4;
    oldest.input.q.rows = 6;  // the first six rows, with their own limits
    oldest.window = 6;
    const std::vector<int32_t> limits = {111, 112, 113, 114, 115, 116};
    oldest.input.row_limits = limits;
    std::vector<float> sum = Score(newest).scores;
    const std::vector<float> rest = Score(oldest).scores;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rest[i];
    SCOPED_TRACE(static_cast<int>(scorer));
    ExpectNear(sum, Score(all).scores);
  }
}

TEST_P(ScoreProperties, GroupSumIsTheSumOfItsHeads) {
  ScoreProblem group({2, 1, 80, 6, 16, 16}, 7010);
  for (const Scorer scorer : kRowScorers) {
    std::vector<float> sum(80, 0.0f);
    for (ptrdiff_t head = 0; head < 2; ++head) {
      ScoreProblem single({1, 1, 80, 6, 16, 16},
                          {group.q().begin() + head * 96, group.q().begin() + (head + 1) * 96},
                          group.k(), group.v());
      single.set_scale(group.scale());
      const ScoreResult result = Score(single, {.scorer = scorer});
      for (size_t p = 0; p < 80; ++p) sum[p] += result.scores[p];
    }
    SCOPED_TRACE(static_cast<int>(scorer));
    ExpectNear(Score(group, {.scorer = scorer}).scores, sum);
  }
}

TEST_P(ScoreProperties, DoubledValuesQuadrupleSquaredScores) {
  ScoreProblem problem({4, 2, 120, 8, 16, 16}, 7020);
  std::vector<std::vector<float>> before;
  constexpr Scorer kSquared[] = {Scorer::kObcValue, Scorer::kObcKey, Scorer::kObcJoint,
                                 Scorer::kDrop};
  for (const Scorer scorer : kSquared) before.push_back(Score(problem, {.scorer = scorer}).scores);
  for (float& v : problem.v()) v *= 2;
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  for (size_t i = 0; i < 4; ++i) {
    for (float& x : before[i]) x *= 4;
    EXPECT_TRUE(SameBits(Score(problem, {.scorer = kSquared[i]}).scores, before[i])) << i;
  }
}

TEST_P(ScoreProperties, OneVectorAddedToAllKeysMattersToKeyTermsOnly) {
  ScoreProblem problem({2, 1, 60, 5, 16, 16}, 7030);
  std::vector<std::vector<float>> before;
  for (const Scorer scorer : kRowScorers)
    before.push_back(Score(problem, {.scorer = scorer}).scores);
  for (size_t i = 0; i < problem.k().size(); ++i)
    problem.k()[i] += 0.125f * static_cast<float>(i % 16);
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  for (size_t i = 0; i < std::size(kRowScorers); ++i) {
    const std::vector<float> after = Score(problem, {.scorer = kRowScorers[i]}).scores;
    if (kRowScorers[i] == Scorer::kObcKey || kRowScorers[i] == Scorer::kObcJoint) {
      EXPECT_GT(std::abs(after[30] - before[i][30]), 1e-3f * before[i][30]);
    } else {
      ExpectNear(after, before[i]);
    }
  }
}

TEST_P(ScoreProperties, SquaredScoresAreNeverNegative) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    ScoreProblem problem({4, 2, 90, 8, 8, 8}, 7040 + seed);
    for (float& v : problem.v()) v = 3.0f + v * 1e-4f;  // v and o almost equal: everything cancels
    problem.Place({"contiguous", 0, false, 0}, DType::kF32);
    for (const Scorer scorer : kRowScorers) {
      const ScoreRequest request =
          problem.Request(AttentionSource::kQueryOutput, {.scorer = scorer});
      OneWay([&] {
        for (const float score : Score(request).scores) EXPECT_GE(score, 0.0f);
      });
      EXPECT_EQ(Difference(Score(request), PlainScore(request)), "") << static_cast<int>(scorer);
    }
  }
}

TEST_P(ScoreProperties, DropIsTheChangeOfTheOutputWhenTheTokenIsDeleted) {
  ScoreProblem problem({1, 1, 12, 1, 8, 6}, 7050);
  const ScoreResult drop = Score(problem, {.scorer = Scorer::kDrop});
  const ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kDrop});
  const PlainAttention full = PlainAttend(problem.layer(), request.input, 1, true);
  for (uint32_t gone = 0; gone < 12; ++gone) {
    // The same cache with the token made bad: invisible to everybody.
    ScoreProblem without({1, 1, 12, 1, 8, 6}, 7050);
    without.k()[gone * 8] = std::numeric_limits<float>::quiet_NaN();
    without.Place({"contiguous", 0, false, 0}, DType::kF32);
    const PlainAttention rest = PlainAttend(without.layer(), request.input, 1, true);
    double change = 0;
    for (uint32_t c = 0; c < 6; ++c) change += (rest.o[c] - full.o[c]) * (rest.o[c] - full.o[c]);
    EXPECT_NEAR(drop.scores[gone], change, 1e-4 * change) << gone;
  }
}

TEST_P(ScoreProperties, MassOfAllRowsIsTheNumberOfVotes) {
  ScoreProblem problem({4, 2, 333, 9, 16, 16}, 7060);
  for (const Scorer scorer : kRowScorers) {
    for (const Reduce reduce : {Reduce::kSum, Reduce::kMean, Reduce::kMax, Reduce::kPre}) {
      const ScoreResult result = Score(problem, {.scorer = scorer, .reduce = reduce});
      for (int g = 0; g < 2; ++g) {
        EXPECT_NEAR(std::accumulate(result.mass.begin() + g * 333,
                                    result.mass.begin() + (g + 1) * 333, 0.0),
                    18.0, 1e-4);
      }
    }
  }
}

// https://github.com/Zefan-Cai/KVCache-Factory/issues/49
TEST_P(CausalMask, EveryRowOfTheWindowHasItsOwnLimit) {
  ScoreProblem problem({1, 1, 4, 4, 1, 1}, std::vector<double>(4, 1.0), {1, 0, 0, 3}, {1, 1, 1, 1});
  const ScoreRequest request =
      problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kAttention});
  OneWay([&] {
    const ScoreResult result = Score(request);
    const float want[] = {2.4168f, 0.5212f, 0.2523f, 0.8098f};
    for (int p = 0; p < 4; ++p) EXPECT_NEAR(result.scores[p], want[p], 5e-5) << p;
  });
}

// https://github.com/NVIDIA/kvpress/issues/134 https://github.com/sgl-project/sglang/pull/12933
TEST_P(PromptShorterThanTheWindow, WindowShrinksAndSpareRowsAreNotRead) {
  for (const uint32_t tokens : {5u, 64u, 65u}) {
    const uint32_t rows = std::min(tokens, 64u);
    ScoreProblem problem({2, 1, tokens, rows, 8, 8}, 7070);
    ScoreRequest request =
        problem.Request(AttentionSource::kQuery,
                        {.scorer = Scorer::kAttention, .pool = Pool::kAvg, .pool_kernel = 5});
    request.window = 64;
    EXPECT_EQ(Difference(Score(request), PlainScore(request)), "");

    // The same rows at the front of a buffer of 64 whose other rows are NaN.
    std::vector<double> padded(2 * 64 * 8, std::numeric_limits<double>::quiet_NaN());
    for (uint32_t h = 0; h < 2; ++h) {
      for (uint32_t i = 0; i < rows * 8; ++i)
        padded[h * 64 * 8 + i] = problem.q()[h * rows * 8 + i];
    }
    DenseTensor buffer = MakeTensor(padded, 2, 64, 8, DType::kF32, true);
    ScoreRequest from_buffer = request;
    from_buffer.input.q = buffer.view;
    from_buffer.input.q.rows = rows;
    EXPECT_TRUE(SameBits(Score(from_buffer).scores, Score(request).scores));
  }
}

// The strides say which number is whose, also where heads and rows are as many.
// https://github.com/Dao-AILab/flash-attention/pull/970
// https://github.com/Dao-AILab/flash-attention/issues/876
// https://github.com/pytorch/pytorch/pull/187899 https://github.com/vllm-project/vllm/pull/57012
TEST_P(StatisticsLayout, StridesDecideAndTheBaseCounts) {
  ScoreProblem problem({3, 3, 20, 3, 8, 8}, 7080);
  const ScoreRequest request =
      problem.Request(AttentionSource::kQueryOutput, {.scorer = Scorer::kObcJoint});
  const ScoreResult want = Score(request);
  const PlainAttention x = PlainAttend(problem.layer(), request.input, 3, true);

  // [heads][rows] instead of [rows][heads]: other bytes, the same answer.
  DenseTensor heads_first = MakeTensor(x.lse, 3, 3, 1, DType::kF32, false);
  ScoreRequest other = request;
  other.input.lse = heads_first.view;
  EXPECT_TRUE(SameBits(Score(other).scores, want.scores));

  // The same bytes read the other way are another input, and the right answer to it.
  other.input.lse.row_stride = heads_first.view.head_stride;
  other.input.lse.head_stride = heads_first.view.row_stride;
  EXPECT_FALSE(SameBits(Score(other).scores, want.scores));
  EXPECT_EQ(Difference(Score(other), PlainScore(other)), "");

  // Base 2.
  std::vector<double> lse2 = x.lse;
  for (double& lse : lse2) lse /= std::log(2.0);
  DenseTensor base2 = MakeTensor(lse2, 3, 3, 1, DType::kF32, true);
  other.input.lse = base2.view;
  other.input.lse_base = LseBase::k2;
  ExpectNear(Score(other).scores, want.scores);

  // A row of -Inf is left out.
  lse2[4] = -std::numeric_limits<double>::infinity();
  DenseTensor with_empty = MakeTensor(lse2, 3, 3, 1, DType::kF32, true);
  other.input.lse = with_empty.view;
  EXPECT_EQ(Score(other).skipped_rows, 1u);
  EXPECT_EQ(Difference(Score(other), PlainScore(other)), "");
}

TEST_P(ScoreEdges, NoRowsGiveEmptyScores) {
  ScoreProblem problem({2, 1, 4, 1, 4, 4}, 7090);
  for (const Scorer scorer : {Scorer::kAttention, Scorer::kRecency, Scorer::kRandom}) {
    ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
    request.layer.sequence.rows = 0;
    const ScoreResult result = Score(request);
    EXPECT_TRUE(result.scores.empty());
    EXPECT_EQ(result.lists, 1u);
  }
}

TEST_P(ScoreEdges, OneTokenCannotBeDeleted) {
  ScoreProblem problem({2, 1, 1, 1, 4, 4}, 7091);
  const ScoreResult result = Score(problem, {.scorer = Scorer::kDrop});
  EXPECT_EQ(result.scores, std::vector<float>{0.0f});
  EXPECT_EQ(result.mass, std::vector<float>{2.0f});
  EXPECT_EQ(result.usable_rows, std::vector<uint32_t>{2});
}

}  // namespace
}  // namespace kvtriage
