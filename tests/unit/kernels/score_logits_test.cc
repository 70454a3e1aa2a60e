// Logits that are more than scaled products (softcap, ALiBi), learned sinks and sliding windows,
// against the plain float64 oracle and by their properties, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "tests/unit/kernels/score_device.h"

namespace kvtriage {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// 2^-1, 2^-2, ...: what a model with as many heads has.
std::vector<double> Slopes(uint32_t heads) {
  std::vector<double> slopes;
  for (uint32_t h = 0; h < heads; ++h) slopes.push_back(std::exp2(-1.0 - h));
  return slopes;
}

class ScoreLogits : public ScoreDevice {
 protected:
  using ScoreDevice::ExpectPlainScores;

  void ExpectPlainScores(ScoreProblem& problem, Scorer scorer, AttentionSource source,
                         Reduce reduce) {
    SCOPED_TRACE(Name(scorer, source, reduce));
    ExpectPlainScores(problem.Request(source, {.scorer = scorer, .reduce = reduce}));
  }

  void ExpectPlainScores(ScoreProblem& problem) {
    for (const Scorer scorer : kRowScorers) {
      for (const AttentionSource source : kRowSources) {
        for (const Reduce reduce : {Reduce::kSum, Reduce::kPre}) {
          ExpectPlainScores(problem, scorer, source, reduce);
          if (HasFailure()) return;
        }
      }
    }
  }
};
KVTRIAGE_ON_EACH_DEVICE(ScoreLogits);

TEST_P(ScoreLogits, SoftcapFromGentleToHard) {
  for (const float cap : {0.05f, 1.0f, 5.0f, 50.0f, 1e6f}) {
    SCOPED_TRACE(cap);
    ScoreProblem problem({4, 2, 130, 9, 16, 24}, 6000);
    problem.set_softcap(cap);
    ExpectPlainScores(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreLogits, SoftcapOfLargeLogits) {
  ScoreProblem problem({4, 2, 130, 9, 64, 24}, 6010);
  for (double& q : problem.q()) q *= 8;
  for (const float cap : {20.0f, 50.0f}) {
    problem.set_softcap(cap);
    for (const Scorer scorer : kRowScorers) {
      for (const AttentionSource source : kRowSources) {
        // Near 1 the rounding of a given A or LSE decides 1 - A.
        if (scorer == Scorer::kDrop && source != AttentionSource::kQuery) continue;
        ExpectPlainScores(problem, scorer, source, Reduce::kSum);
      }
    }
  }
}

TEST_P(ScoreLogits, AlibiSlopes) {
  for (const uint32_t tokens : {1u, 23u, 64u, 301u}) {
    ScoreProblem problem({8, 2, tokens, std::min(17u, tokens), 16, 24}, 6100 + tokens);
    problem.set_alibi_slopes(Slopes(8));
    ExpectPlainScores(problem);
    problem.set_softcap(3.0f);
    ExpectPlainScores(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreLogits, AlibiCountsFromTheRowsOwnPlace) {
  ScoreProblem problem({4, 2, 60, 6, 16, 16}, 6200);
  problem.set_alibi_slopes(Slopes(4));
  problem.set_row_limits({0, 60, 1, 33, 60, 7});
  ExpectPlainScores(problem);
}

TEST_P(ScoreLogits, AlibiBeyondOneBatchAndOnePart) {
  if (HasTooManyFibers()) return;
  ScoreProblem batches({4, 1, 150, 150, 8, 8}, 6210);
  batches.set_alibi_slopes(Slopes(4));
  ExpectPlainScores(batches);
  ScoreProblem parts({2, 1, 5000, 3, 16, 16}, 6220);
  parts.set_alibi_slopes({0.001, 0.03});
  parts.set_sink_logits({0.7, 3});
  const ScoreRequest request = parts.Request(AttentionSource::kQuery, {.scorer = Scorer::kObcKey});
  EXPECT_EQ(Difference(Score(request), PlainScore(request)), "");
}

TEST_P(ScoreLogits, LearnedSinks) {
  // No sink, a weak, a usual and a heavy one, one that leaves next to nothing.
  for (const std::vector<double>& sinks :
       {std::vector<double>{-kInf, -20, 0.7, 4}, std::vector<double>{12, 12, 30, 60}}) {
    ScoreProblem problem({4, 2, 130, 9, 16, 24}, 6300);
    problem.set_sink_logits(sinks);
    ExpectPlainScores(problem);
    problem.set_softcap(5);
    ExpectPlainScores(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreLogits, ASinkNextToADominantToken) {
  // One token far above the others: its weight is settled between it and the sink alone.
  ScoreProblem problem({2, 1, 90, 5, 16, 16}, 6310);
  for (size_t c = 0; c < 16; ++c) problem.k()[20 * 16 + c] = problem.q()[c] > 0 ? 6.0f : -6.0f;
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  for (const double sink : {-kInf, 2.0, 10.0, 20.0, 28.0}) {
    SCOPED_TRACE(sink);
    problem.set_sink_logits({sink, sink});
    ExpectPlainScores(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreLogits, SlidingWindows) {
  for (const uint32_t width : {1u, 2u, 7u, 48u, 100u, 129u, 1000u}) {
    SCOPED_TRACE(width);
    ScoreProblem problem({4, 2, 130, 40, 16, 24}, 6400);
    problem.set_sliding_window(width);
    ExpectPlainScores(problem);
    problem.set_sink_logits({1, 2, 3, -kInf});
    ExpectPlainScores(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreLogits, BadRowsBesideASlidingWindow) {
  // Window rows that see one token, two, or none, because the others of their window are bad.
  ScoreProblem problem({4, 2, 40, 12, 8, 8}, 6410);
  for (const size_t p : {26, 27, 28, 30, 31, 33, 34, 35, 39}) {
    problem.k()[p * 8 + p % 8] = std::numeric_limits<float>::quiet_NaN();
    problem.v()[(40 + p) * 8] = std::numeric_limits<float>::infinity();
  }
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  for (const uint32_t width : {2u, 3u, 5u}) {
    SCOPED_TRACE(width);
    problem.set_sliding_window(width);
    ExpectPlainScores(problem);
    problem.set_row_limits({40, 3, 29, 28, 36, 35, 1, 0, 40, 33, 32, 31});
    ExpectPlainScores(problem);
    problem.set_row_limits({});
  }
}

TEST_P(ScoreLogits, RowsOfAHeadWithBadNumbersAreLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ScoreProblem problem({4, 2, 50, 5, 8, 8}, 6500);
  const auto expect_plain = [&] {
    for (const Scorer scorer : kRowScorers) {
      ExpectPlainScores(problem, scorer, AttentionSource::kQuery, Reduce::kSum);
      ExpectPlainScores(problem, scorer, AttentionSource::kQueryOutput, Reduce::kMean);
    }
  };
  problem.set_sink_logits({nan, 1, kInf, 1});
  expect_plain();
  problem.set_sink_logits({});
  problem.set_alibi_slopes({0.5, nan, 0.5, kInf});
  expect_plain();
  problem.set_alibi_slopes({0.5, 0.5, nan, nan});
  const ScoreRequest request = problem.Request(AttentionSource::kQuery, {});
  const ErrorInfo info = ScoreError(request);
  EXPECT_EQ(info.reason, ErrorReason::kNoUsableRow);
  EXPECT_EQ(info.index, 1u);
}

TEST_P(ScoreLogits, QueriesFromBeforeRopeAreTurned) {
  Rope rope{.pairing = RopePairing::kHalf, .rotary_dim = 16};
  for (uint32_t j = 0; j < 8; ++j) rope.speeds.push_back(std::pow(1e4, -2.0 * j / 16));
  ScoreProblem problem({4, 2, 90, 9, 24, 16}, 6610);
  problem.set_rotation({.rope = &rope, .first = 4081});
  ExpectPlainScores(problem);
  rope.pairing = RopePairing::kInterleaved;
  rope.offset = 8;
  rope.attention_factor = 1.1386;  // YaRN by 4
  ExpectPlainScores(problem);
  // Three planes of positions, for 3, 1 and 4 pairs.
  rope.sections = {3, 1, 4};
  std::vector<int32_t> positions(3 * 9);
  for (size_t n = 0; n < positions.size(); ++n) positions[n] = static_cast<int32_t>(n * n % 700);
  problem.set_rotation({.rope = &rope, .positions = positions.data(), .stride = 9});
  ExpectPlainScores(problem);
}

// One turn is as good as another: what counts is the distance between query and key.
TEST_P(ScoreLogits, TurningQueriesIsTurningThemBeforehand) {
  Rope rope{.pairing = RopePairing::kHalf, .rotary_dim = 24};
  for (uint32_t j = 0; j < 12; ++j) rope.speeds.push_back(std::pow(1e4, -2.0 * j / 24));
  ScoreProblem before({4, 2, 90, 9, 24, 16}, 6620), after({4, 2, 90, 9, 24, 16}, 6620);
  before.set_rotation({.rope = &rope, .first = 81});
  std::vector<float> cosines(12), sines(12), row(24);
  for (size_t n = 0; n < after.q().size(); n += 24) {
    TurnBetween(rope, AngleMode::kExact, AtPosition(0),
                AtPosition(81 + static_cast<int64_t>(n / 24 % 9)), cosines, sines);
    for (size_t k = 0; k < 24; ++k) row[k] = static_cast<float>(after.q()[n + k]);
    TurnRow(rope, cosines, sines, row.data());
    for (size_t k = 0; k < 24; ++k) after.q()[n + k] = row[k];
  }
  for (const Scorer scorer : kRowScorers) {
    EXPECT_TRUE(SameBits(Score(before.Request(AttentionSource::kQuery, {.scorer = scorer})).scores,
                         Score(after.Request(AttentionSource::kQuery, {.scorer = scorer})).scores));
  }
}

TEST_P(ScoreLogits, ThreadsLayoutsAndRepeatsGiveTheSameBits) {
  ScoreProblem problem({8, 2, 1100, 9, 24, 40}, 6600);
  problem.set_softcap(5);
  problem.set_alibi_slopes(Slopes(8));
  problem.set_sink_logits({0, 1, 2, 3, 4, 5, 6, 7});
  problem.set_sliding_window(700);
  for (const Scorer scorer : {Scorer::kObcJoint, Scorer::kDrop}) {
    OneWay([&] {
      problem.Place({"contiguous", 0, false, 0}, DType::kF32);
      ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
      const ScoreResult first = Score(request, 1);
      EXPECT_TRUE(SameBits(first.scores, Score(request, 8).scores));
      EXPECT_TRUE(SameBits(first.scores, Score(request, 1).scores));
      problem.Place({"transposed 32", 32, true, 3}, DType::kF32);
      request.layer = problem.layer();
      EXPECT_TRUE(SameBits(first.scores, Score(request, 2).scores));
    });
  }
}

TEST_P(ScoreLogits, EqualRowsGetEqualScoresUnderACap) {
  ScoreProblem problem({4, 2, 300, 7, 24, 24}, 6700);
  const std::vector<size_t> copies = {4, 16, 47, 48, 63, 95, 96, 200, 287, 290};
  for (const size_t p : copies) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t c = 0; c < 24; ++c) {
        problem.k()[(h * 300 + p) * 24 + c] = problem.k()[(h * 300 + 3) * 24 + c];
        problem.v()[(h * 300 + p) * 24 + c] = problem.v()[(h * 300 + 3) * 24 + c];
      }
    }
  }
  problem.Place({"paged", 16, false, 3}, DType::kF32);
  problem.set_softcap(4);
  problem.set_sink_logits({1, 1, 1, 1});
  for (const Scorer scorer : kRowScorers) {
    const ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
    OneWay([&] {
      const ScoreResult result = Score(request);
      for (const size_t p : copies) EXPECT_EQ(result.scores[p], result.scores[3]) << p;
    });
  }
}

TEST_P(ScoreLogits, AWideWindowAndAHugeCapChangeNothing) {
  ScoreProblem problem({4, 2, 130, 9, 16, 24}, 6800);
  ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kDrop});
  const ScoreResult plain = Score(request);
  request.layer.sliding_window = 130;
  EXPECT_TRUE(SameBits(plain.scores, Score(request).scores));
  problem.set_sink_logits({-kInf, -kInf, -kInf, -kInf});
  request = problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kDrop});
  EXPECT_TRUE(SameBits(plain.scores, Score(request).scores));
}

}  // namespace
}  // namespace kvtriage
