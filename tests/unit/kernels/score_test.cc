// The scorer against hand-computed numbers and against the plain float64 oracle, on every
// instruction set of this processor.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/golden_inputs.h"
#include "tests/support/plain_score.h"
#include "tests/unit/kernels/score_device.h"

namespace kvtriage {
namespace {

constexpr Reduce kReduces[] = {Reduce::kSum, Reduce::kMean, Reduce::kMax, Reduce::kPre};

std::string Name(const ProblemShape& s) {
  return "Hq " + std::to_string(s.q_heads) + ", Hk " + std::to_string(s.kv_heads) + ", N " +
         std::to_string(s.tokens) + ", W " + std::to_string(s.rows) + ", dk " +
         std::to_string(s.dk) + ", dv " + std::to_string(s.dv);
}

// One query head, every q = 1, keys 0, ln 2, ln 4, values (1,0), (0,1), (1,1).
ScoreProblem HandProblem(uint32_t rows) {
  const float ln2 = std::log(2.0f);
  return ScoreProblem({1, 1, 3, rows, 1, 2}, std::vector<double>(rows, 1.0), {0, ln2, 2 * ln2},
                      {1, 0, 0, 1, 1, 1});
}

class ScoreHandNumbers : public ScoreDevice {};
class ScoreAgainstPlainLoops : public ScoreDevice {
 protected:
  void ExpectPlainScoresEverywhere(ScoreProblem& problem) {
    SCOPED_TRACE(Name(problem.shape()));
    for (const Scorer scorer : kRowScorers) {
      for (const AttentionSource source : kRowSources) {
        for (const Reduce reduce : kReduces) {
          SCOPED_TRACE(Name(scorer, source, reduce));
          ExpectPlainScores(problem.Request(source, {.scorer = scorer, .reduce = reduce}));
          if (HasFailure()) return;
        }
      }
    }
  }
};
KVTRIAGE_ON_EACH_DEVICE(ScoreHandNumbers);
KVTRIAGE_ON_EACH_DEVICE(ScoreAgainstPlainLoops);

TEST_P(ScoreHandNumbers, OneAndTwoRows) {
  struct Want {
    Scorer scorer;
    float one[3], two[3];
  };
  const Want wants[] = {
      {Scorer::kObcValue,
       {0.020408163265f, 0.081632653061f, 0.653061224490f},
       {0.131519274376f, 0.526077097506f, 0.653061224490f}},
      {Scorer::kObcKey,
       {0, 0.020810959370f, 0.064033721139f},
       {0, 0.068263108893f, 0.064033721139f}},
      {Scorer::kObcJoint,
       {0.020408163265f, 0.118610310520f, 1.105095699761f},
       {0.131519274376f, 0.815883846875f, 1.105095699761f}},
      {Scorer::kDrop,
       {0.022675736961f, 0.084897959184f, 0.181405895692f},
       {0.244897959184f, 0.973786848073f, 0.181405895692f}},
  };
  for (const Want& want : wants) {
    for (const AttentionSource source : kRowSources) {
      for (const uint32_t rows : {1u, 2u}) {
        SCOPED_TRACE(Name(want.scorer, source, Reduce::kSum) + ", rows " + std::to_string(rows));
        ScoreProblem problem = HandProblem(rows);
        const ScoreRequest request = problem.Request(source, {.scorer = want.scorer});
        OneWay([&] {
          const ScoreResult result = Score(request);
          ASSERT_EQ(result.scores.size(), 3u);
          for (int p = 0; p < 3; ++p) {
            EXPECT_NEAR(result.scores[p], (rows == 1 ? want.one : want.two)[p], 2e-6) << p;
          }
        });
      }
    }
  }
}

TEST_P(ScoreHandNumbers, MagnitudeWeighedAttention) {
  ScoreProblem problem = HandProblem(1);
  const ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kVatp});
  const ScoreResult result = Score(request);
  const float want[] = {1.0f / 7, 2.0f / 7, 8.0f / 7};
  const float mass[] = {1.0f / 7, 2.0f / 7, 4.0f / 7};
  for (int p = 0; p < 3; ++p) {
    EXPECT_NEAR(result.scores[p], want[p], 1e-6);
    EXPECT_NEAR(result.mass[p], mass[p], 1e-6);
  }
  EXPECT_EQ(result.usable_rows, std::vector<uint32_t>{1});
}

TEST(GoldenInputs, StreamSevenStartsAsInTheReference) {
  EXPECT_EQ(GridValues(7, 8),
            (std::vector<float>{-0.625f, -0.75f, 0.0625f, 0.125f, -1.5f, 0.875f, 0.5f, 0.25f}));
}

TEST_P(ScoreAgainstPlainLoops, LengthsAroundTileSizes) {
  for (const uint32_t tokens : {1, 2, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257}) {
    ProblemShape shape{4, 2, tokens, std::min(5u, tokens), 8, 12};
    ScoreProblem problem(shape, 9000 + tokens);
    ExpectPlainScoresEverywhere(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreAgainstPlainLoops, HeadSizesAndGroups) {
  const ProblemShape shapes[] = {
      {1, 1, 20, 3, 1, 1},    {3, 1, 50, 7, 3, 5},      {6, 2, 90, 16, 40, 56},
      {14, 2, 40, 3, 64, 64}, {2, 2, 70, 17, 128, 128}, {2, 1, 50, 2, 576, 512},
      {5, 1, 66, 50, 17, 9},  {16, 1, 33, 1, 24, 32},
  };
  for (const ProblemShape& shape : shapes) {
    ScoreProblem problem(shape, 9300 + shape.dk);
    ExpectPlainScoresEverywhere(problem);
    if (HasFailure()) return;
  }
}

TEST_P(ScoreAgainstPlainLoops, EveryInputType) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(type));
    for (const bool rows_first : {true, false}) {
      ScoreProblem problem({4, 2, 75, 9, 24, 20}, 9400);
      problem.Place({"paged", 16, false, 5}, type);
      problem.SetTensors(type, rows_first);
      ExpectPlainScoresEverywhere(problem);
      if (HasFailure()) return;
    }
  }
}

TEST_P(ScoreAgainstPlainLoops, F8WithEveryKindOfScale) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const CacheScales& scales :
         {CacheScales{}, CacheScales{0.25f, 0.75f, false}, CacheScales{0.3f, 1.7f, true}}) {
      for (const CacheLayout& layout :
           {CacheLayout{"paged", 16, false, 5}, CacheLayout{"transposed", 32, true, 3}}) {
        SCOPED_TRACE(std::string(DTypeName(type)) + " " + layout.name);
        ScoreProblem problem({4, 2, 75, 9, 24, 21}, 9410);
        problem.Place(layout, type, scales);
        problem.SetTensors(type, layout.transposed_keys);
        for (const Scorer scorer : {Scorer::kObcJoint, Scorer::kDrop, Scorer::kVatp}) {
          for (const AttentionSource source : kRowSources) {
            ExpectPlainScores(problem.Request(source, {.scorer = scorer}));
          }
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ScoreAgainstPlainLoops, LatentRowsOfMla) {
  // V is a part of K's rows; one head for all queries.
  for (const DType type : {DType::kBF16, DType::kF8E4M3}) {
    ScoreProblem problem({16, 1, 100, 3, 576, 512}, 9420);
    problem.Place({"paged", 64, false, 0}, type);
    for (const Scorer scorer : {Scorer::kObcJoint, Scorer::kDrop}) {
      ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
      request.layer.v = request.layer.k;
      request.layer.v.layout.row_elems = 512;
      request.layer.v.base += 64 * request.layer.k.layout.elem_stride;
      ExpectPlainScores(request);
    }
  }
}

TEST_P(ScoreAgainstPlainLoops, LargeLogitsAndValues) {
  ScoreProblem problem({4, 2, 120, 16, 64, 64}, 9500);
  for (double& q : problem.q()) q *= 8;
  for (float& v : problem.v()) v *= 32;
  problem.Place({"contiguous", 0, false, 0}, DType::kF16);
  ExpectPlainScoresEverywhere(problem);
}

TEST_P(ScoreAgainstPlainLoops, RowLimits) {
  ScoreProblem problem({4, 2, 60, 6, 16, 16}, 9600);
  // A row that sees nothing, one that sees one token, one that sees more than there is.
  problem.set_row_limits({0, 60, 1, 33, 1000, 7});
  ExpectPlainScoresEverywhere(problem);
}

TEST_P(ScoreAgainstPlainLoops, RowsBeyondOneBatch) {
  if (HasTooManyFibers()) return;
  // 4 * 150 rows of one KV head: more than the kernel takes at once; the window is all rows.
  ScoreProblem problem({4, 1, 150, 150, 8, 8}, 9700);
  for (const AttentionSource source : kRowSources) {
    for (const Reduce reduce : {Reduce::kMean, Reduce::kMax, Reduce::kPre}) {
      for (const Scorer scorer : {Scorer::kAttention, Scorer::kDrop}) {
        SCOPED_TRACE(Name(scorer, source, reduce));
        ExpectPlainScores(problem.Request(source, {.scorer = scorer, .reduce = reduce}));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ScoreAgainstPlainLoops, LongSequence) {
  if (HasTooManyFibers()) return;
  // Several ranges and several parts of the first pass.
  for (const Scorer scorer : {Scorer::kAttention, Scorer::kObcKey}) {
    ScoreProblem problem({2, 1, 5000, 3, 16, 16}, 9800);
    ExpectPlainScores(problem.Request(AttentionSource::kQuery, {.scorer = scorer}));
  }
}

TEST_P(ScoreAgainstPlainLoops, WindowShorterThanTheInput) {
  ScoreProblem problem({4, 2, 60, 20, 16, 16}, 9900);
  for (const AttentionSource source : kRowSources) {
    for (const uint32_t window : {1u, 7u, 20u, 100u}) {
      ScoreRequest request = problem.Request(source, {.scorer = Scorer::kObcJoint});
      request.window = window;
      SCOPED_TRACE(window);
      ExpectPlainScores(request);
    }
  }
}

TEST_P(ScoreAgainstPlainLoops, Pooling) {
  ScoreProblem problem({4, 2, 90, 12, 16, 16}, 9930);
  for (const Pool pool : {Pool::kAvg, Pool::kMax}) {
    for (const uint32_t kernel : {1u, 5u, 7u, 255u}) {
      for (const uint32_t end : {0u, 1u, 60u, 90u}) {
        ScoreRequest request =
            problem.Request(AttentionSource::kQuery,
                            {.scorer = Scorer::kObcKey, .pool = pool, .pool_kernel = kernel});
        request.pool_end = end;
        SCOPED_TRACE(std::to_string(kernel) + " up to " + std::to_string(end));
        ExpectPlainScores(request);
      }
    }
  }
}

}  // namespace
}  // namespace kvtriage
