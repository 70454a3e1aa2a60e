// What must not change a single bit: layouts, threads, neighbours, memory that belongs to nobody;
// and bad rows, which may change only themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/splitmix64.h"
#include "tests/unit/kernels/score_device.h"

namespace kvtriage {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
void ExpectSame(const ScoreResult& a, const ScoreResult& b) {
  EXPECT_TRUE(SameBits(a.scores, b.scores));
  EXPECT_TRUE(SameBits(a.mass, b.mass));
  EXPECT_EQ(a.usable_rows, b.usable_rows);
  EXPECT_EQ(a.skipped_rows, b.skipped_rows);
  EXPECT_EQ(a.nonfinite_tokens, b.nonfinite_tokens);
}

class ScoreBits : public ScoreDevice {};
KVTRIAGE_ON_EACH_DEVICE(ScoreBits);
class UnwrittenRows : public ScoreDevice {};
KVTRIAGE_ON_EACH_DEVICE(UnwrittenRows);
class NonFiniteData : public ScoreDevice {};
KVTRIAGE_ON_EACH_DEVICE(NonFiniteData);

TEST_P(ScoreBits, EveryLayoutGivesTheSame) {
  constexpr CacheLayout kLayouts[] = {
      {"contiguous", 0, false, 0},       {"paged 16", 16, false, 0},
      {"paged 16 from 5", 16, false, 5}, {"paged 1", 1, false, 0},
      {"transposed 16", 16, true, 0},    {"transposed 32", 32, true, 3},
      {"transposed 64", 64, true, 9},    {"transposed", 0, true, 0}};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(type));
    ScoreProblem problem({4, 2, 133, 9, 40, 56}, 8000);
    for (const Scorer scorer : kRowScorers) {
      for (const AttentionSource source : kRowSources) {
        if (Skips()) continue;
        SCOPED_TRACE(Name(scorer, source));
        problem.PlaceInterleaved(type);
        ScoreRequest request = problem.Request(source, {.scorer = scorer});
        OneWay([&] {
          problem.PlaceInterleaved(type);
          request.layer = problem.layer();
          const ScoreResult first = Score(request);
          for (const CacheLayout& layout : kLayouts) {
            SCOPED_TRACE(layout.name);
            problem.Place(layout, type);
            request.layer = problem.layer();
            ExpectSame(first, Score(request));
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

// A number of 8 bits with a scale is a number like any other: float32 rows of the same numbers get
// the same scores to the last bit, wherever the scale comes from.
TEST_P(ScoreBits, F8GivesWhatItsNumbersGive) {
  constexpr CacheLayout kLayouts[] = {{"contiguous", 0, false, 0},
                                      {"paged 16 from 5", 16, false, 5},
                                      {"transposed 32", 32, true, 3}};
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const bool per_row : {false, true}) {
      SCOPED_TRACE(std::string(DTypeName(type)) + (per_row ? " per row" : " constant"));
      ScoreProblem problem({4, 2, 133, 9, 40, 56}, 8010);
      const auto make_codes = [&](std::vector<float>& x, float scale) {
        for (size_t n = 0; n < x.size(); ++n) {
          const auto code = static_cast<uint8_t>(SplitMix64(8010, n) & 0xBF);
          const size_t row = n / (x.size() / 2 / 133);
          const float factor = per_row ? CacheScales::RowFactor(static_cast<uint32_t>(row / 133),
                                                                static_cast<uint32_t>(row % 133))
                                       : 1.0f;
          x[n] = F8ToFloat(code, type) * (scale * factor);
        }
      };
      make_codes(problem.k(), 0.5f);
      make_codes(problem.v(), 0.375f);
      for (const Scorer scorer : kRowScorers) {
        if (Skips()) continue;
        problem.Place(kLayouts[0], DType::kF32);
        ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
        OneWay([&] {
          problem.Place(kLayouts[0], DType::kF32);
          request.layer = problem.layer();
          const ScoreResult first = Score(request);
          for (const CacheLayout& layout : kLayouts) {
            SCOPED_TRACE(layout.name);
            problem.Place(layout, type, {0.5f, 0.375f, per_row});
            request.layer = problem.layer();
            ExpectSame(first, Score(request));
          }
        });
        if (HasFailure()) return;
      }
    }
  }
}

// Rows whose code or scale is no number are bad, and change no other row.
TEST_P(ScoreBits, BadF8RowsChangeOnlyThemselves) {
  ScoreProblem problem({4, 2, 70, 5, 16, 16}, 8020);
  problem.Place({"paged", 16, false, 0}, DType::kF8E4M3, {0.5f, 0.25f, true});
  ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kObcJoint});
  const ScoreResult clean = Score(request);
  const LayerRows layer = request.layer;
  const auto scale_at = [&](const KvView& view, uint32_t head, uint64_t p) {
    const auto block = static_cast<uint64_t>(layer.sequence.table[p / 16]);
    return const_cast<std::byte*>(view.scales.base) + block * view.scales.block_stride +
           head * view.scales.head_stride + p % 16 * view.scales.slot_stride;
  };
  const auto bad = [&](const KvView& view, uint32_t head, uint64_t p, float scale) {
    SCOPED_TRACE(scale);
    float before;
    std::memcpy(&before, scale_at(view, head, p), sizeof before);
    std::memcpy(scale_at(view, head, p), &scale, sizeof scale);
    OneWay([&] {
      const ScoreResult result = Score(request);
      EXPECT_EQ(result.nonfinite_tokens, 1u);
      EXPECT_TRUE(std::isnan(result.scores[head * 70 + p]));
      // Heads share nothing.
      EXPECT_TRUE(std::equal(result.scores.begin() + (1 - head) * 70,
                             result.scores.begin() + (2 - head) * 70,
                             Score(request).scores.begin() + (1 - head) * 70));
      EXPECT_EQ(Difference(result, PlainScore(request)), "");
    });
    std::memcpy(scale_at(view, head, p), &before, sizeof before);
  };
  for (const float scale : {0.0f, -1.0f, kNaN, kInf, -kInf}) {
    bad(layer.k, 0, 3, scale);
    bad(layer.v, 1, 69, scale);
  }
  // A finite scale that makes the number infinite.
  bad(layer.v, 1, 5, 3e38f);
  EXPECT_TRUE(SameBits(clean.scores, Score(request).scores));
  *RowAddress(layer.k, layer.sequence, 1, 9) = std::byte{0x7F};
  EXPECT_TRUE(std::isnan(Score(request).scores[70 + 9]));
}

TEST_P(ScoreBits, ThreadsAndRepeatsGiveTheSame) {
  ScoreProblem problem({8, 2, 1100, 5, 8, 8}, 8100);
  ForEachScorer(problem, [&](const ScoreRequest& request) {
    const ScoreResult first = Score(request, 1);
    ExpectSame(first, Score(request, 2));
    ExpectSame(first, Score(request, 8));
    ExpectSame(first, Score(request, 1));
  });
}

TEST_P(ScoreBits, EqualRowsGetEqualScoresAnywhere) {
  // Row 3 again at places with other tiles, lanes and neighbours; all are seen by every query row.
  ScoreProblem problem({4, 2, 300, 7, 24, 24}, 8200);
  const std::vector<size_t> copies = {3, 4, 16, 47, 48, 63, 95, 96, 200, 287, 290};
  const auto copy = [&](std::vector<float>& x, size_t elems) {
    for (size_t h = 0; h < 2; ++h) {
      for (const size_t p : copies) {
        std::copy_n(x.begin() + static_cast<ptrdiff_t>((h * 300 + 3) * elems), elems,
                    x.begin() + static_cast<ptrdiff_t>((h * 300 + p) * elems));
      }
    }
  };
  copy(problem.k(), 24);
  copy(problem.v(), 24);
  problem.Place({"paged", 16, false, 3}, DType::kF32);
  ForEachScorer(problem, [&](const ScoreRequest& request) {
    const ScoreResult result = Score(request, 2);
    for (size_t h = 0; h < 2; ++h) {
      for (const size_t p : copies) {
        EXPECT_EQ(result.scores[h * 300 + p], result.scores[h * 300 + 3]) << p;
      }
    }
  });
}

TEST_P(ScoreBits, EqualPairHoldingAllWeightIsScoredAlike) {
  // Two equal tokens with half of the weight each: neither may be treated as the dominant one.
  ScoreProblem problem({2, 1, 70, 3, 16, 16}, 8210);
  for (const size_t p : {size_t{5}, size_t{60}}) {
    for (size_t c = 0; c < 16; ++c) {
      problem.k()[p * 16 + c] = static_cast<float>(problem.q()[c]) * 8;
      problem.v()[p * 16 + c] = problem.v()[5 * 16 + c];
    }
  }
  for (size_t i = 0; i < problem.q().size(); ++i) problem.q()[i] = problem.q()[i % 16];
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  ForEachScorer(problem, [&](const ScoreRequest& request) {
    const ScoreResult result = Score(request);
    EXPECT_EQ(result.scores[5], result.scores[60]);
    EXPECT_GT(result.mass[5], 2.5f);  // of 6 rows, half each
  });
}

TEST_P(ScoreBits, ASequenceAloneEqualsTheSameAmongOthers) {
  // One KV head of several, and the same head alone.
  ScoreProblem both({4, 2, 150, 6, 16, 24}, 8300);
  const size_t q = 2 * 6 * 16, k = 150 * 16, v = 150 * 24;
  ScoreProblem alone({2, 1, 150, 6, 16, 24}, {both.q().begin() + q, both.q().end()},
                     {both.k().begin() + k, both.k().end()},
                     {both.v().begin() + v, both.v().end()});
  alone.set_scale(both.scale());
  for (const Scorer scorer : kRowScorers) {
    for (const AttentionSource source : kRowSources) {
      SCOPED_TRACE(Name(scorer, source));
      const ScoreResult a = Score(both.Request(source, {.scorer = scorer}), 2);
      const ScoreResult b = Score(alone.Request(source, {.scorer = scorer}));
      EXPECT_TRUE(SameBits({a.scores.begin() + 150, a.scores.end()}, b.scores));
    }
  }
}

// A block that is not full: rows behind the last one hold anything.
// https://github.com/sgl-project/sglang/pull/32477
// https://github.com/vllm-project/vllm/issues/42496
// https://github.com/vllm-project/vllm/issues/50749
TEST_P(UnwrittenRows, ContributeNothingWhateverTheyHold) {
  for (uint32_t tail = 0; tail < 16; ++tail) {
    for (const bool transposed : {false, true}) {
      ScoreProblem problem({4, 2, 48 + tail, 5, 16, 24}, 8400);
      // PlacedCache leaves NaN in every slot without a row, unused blocks too.
      problem.Place({"paged", 16, transposed, transposed ? 3u : 0u}, DType::kBF16);
      for (const Scorer scorer : {Scorer::kAttention, Scorer::kObcJoint, Scorer::kDrop}) {
        if (Skips()) continue;
        SCOPED_TRACE(std::to_string(tail) + Name(scorer, AttentionSource::kQuery));
        ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
        const ScoreResult with_nan = Score(request);
        EXPECT_EQ(with_nan.nonfinite_tokens, 0u);
        ScoreProblem dense({4, 2, 48 + tail, 5, 16, 24}, 8400);
        dense.Place({"contiguous", 0, false, 0}, DType::kBF16);
        request.layer = dense.layer();
        OneWay([&] {
          const ScoreResult want = Score(request);
          ScoreRequest paged = request;
          paged.layer = problem.layer();
          ExpectSame(want, Score(paged));
        });
      }
    }
  }
}

// https://github.com/pytorch/pytorch/issues/16762 https://github.com/pytorch/pytorch/issues/1810
// https://github.com/pytorch/pytorch/issues/117617 https://github.com/alibaba/rtp-llm/pull/587
TEST_P(NonFiniteData, BadRowsChangeNoOtherScore) {
  constexpr uint32_t kTokens = 140;
  struct Bad {
    uint32_t token;
    float value;
    bool in_keys;
  };
  const Bad bads[] = {{0, kNaN, true},   {17, kInf, true},  {60, -kInf, false},
                      {61, kNaN, false}, {139, kInf, true}, {131, kNaN, false}};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool transposed : {false, true}) {
      // The oracle and the kernels see the cache with the bad rows; the reference for "no change"
      // is the same cache with these rows out of sight: keys so small that their weight is nothing
      // would not be exact, so the oracle decides about values and this test about reach.
      ScoreProblem problem({4, 2, kTokens, 12, 16, 16}, 8500);
      for (const Bad& bad : bads) {
        std::vector<float>& x = bad.in_keys ? problem.k() : problem.v();
        x[bad.token * 16 + bad.token % 16] = bad.value;  // KV head 0 only
      }
      problem.Place({"paged", 16, transposed, 3}, type);
      ForEachScorer(problem, [&](const ScoreRequest& request) {
        const ScoreResult result = Score(request, 2);
        const bool ready = request.input.source == AttentionSource::kReady;
        const bool values = ReadsValues(request.spec.scorer);
        uint32_t want = 0;
        for (const Bad& bad : bads) {
          const bool counts = bad.in_keys ? !ready : values;
          want += counts ? 1 : 0;
          EXPECT_EQ(std::isnan(result.scores[bad.token]), counts) << bad.token;
          EXPECT_TRUE(std::isfinite(result.mass[bad.token]));
        }
        EXPECT_EQ(result.nonfinite_tokens, want);
        EXPECT_EQ(Difference(result, PlainScore(request)), "");
      });
      if (HasFailure()) return;
    }
  }
}

TEST_P(NonFiniteData, OthersScoreAsIfTheBadRowWereNotThere) {
  // With given outputs and statistics, bit for bit.
  constexpr uint32_t kTokens = 100, kBad = 61;
  ScoreProblem with({4, 2, kTokens, 8, 16, 16}, 8505);
  for (size_t h = 0; h < 2; ++h) with.k()[(h * kTokens + kBad) * 16 + 3] = kInf;
  with.Place({"contiguous", 0, false, 0}, DType::kF32);
  std::vector<float> k, v;
  for (size_t row = 0; row < 2 * kTokens; ++row) {
    if (row % kTokens == kBad) continue;
    k.insert(k.end(), with.k().begin() + static_cast<ptrdiff_t>(row * 16),
             with.k().begin() + static_cast<ptrdiff_t>(row * 16 + 16));
    v.insert(v.end(), with.v().begin() + static_cast<ptrdiff_t>(row * 16),
             with.v().begin() + static_cast<ptrdiff_t>(row * 16 + 16));
  }
  ScoreProblem without({4, 2, kTokens - 1, 8, 16, 16}, with.q(), k, v);
  for (const Scorer scorer : kRowScorers) {
    const ScoreRequest request =
        with.Request(AttentionSource::kQueryOutput, {.scorer = scorer, .reduce = Reduce::kMax});
    ScoreRequest shorter = request;
    shorter.layer = without.layer();
    OneWay([&] {
      ScoreResult result = Score(request);
      for (size_t h = 2; h-- > 0;) {
        result.scores.erase(result.scores.begin() + static_cast<ptrdiff_t>(h * kTokens + kBad));
      }
      EXPECT_TRUE(SameBits(result.scores, Score(shorter).scores));
    });
  }
}

TEST_P(NonFiniteData, WhatABadRowHoldsDoesNotMatter) {
  std::vector<ScoreResult> results;
  for (const float value : {kNaN, kInf, -kInf}) {
    ScoreProblem problem({4, 2, 100, 8, 16, 16}, 8510);
    problem.k()[50 * 16] = value;
    problem.v()[51 * 16 + 15] = value;
    problem.Place({"contiguous", 0, false, 0}, DType::kF32);
    results.push_back(
        Score(problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kObcJoint})));
  }
  ExpectSame(results[0], results[1]);
  ExpectSame(results[0], results[2]);
}

TEST_P(NonFiniteData, ReadyColumnSumsKeepTheirOrderOfValues) {
  ScoreProblem problem({1, 1, 8, 1, 4, 4}, 8520);
  ScoreRequest request =
      problem.Request(AttentionSource::kColumnSums, {.scorer = Scorer::kAttention});
  const std::vector<double> sums = {.1, kInf, kNaN, .3, .2, -kNaN, .3, -kInf};
  problem.sums_tensor = MakeTensor(sums, 1, 1, 8, DType::kF32, true);
  request.input.sums = problem.sums_tensor.view;
  const ScoreResult result = Score(request);
  EXPECT_TRUE(SameBits(result.scores, {.1f, kInf, kNaN, .3f, .2f, kNaN, .3f, -kInf}));
  EXPECT_EQ(result.nonfinite_tokens, 2u);
}

void SetElement(DenseTensor& tensor, uint32_t row, uint32_t head, uint32_t elem, float value) {
  StoreElement(tensor.bytes.data() + (tensor.view.At(row, head, elem) - tensor.view.base),
               tensor.view.dtype, value);
}

TEST_P(NonFiniteData, BadWindowRowsAreLeftOut) {
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMax, Reduce::kPre}) {
    for (const Scorer scorer : kRowScorers) {
      ScoreProblem problem({4, 2, 90, 7, 16, 16}, 8530);
      const ScoreRequest request =
          problem.Request(AttentionSource::kQueryOutput, {.scorer = scorer, .reduce = reduce});
      SetElement(problem.q_tensor, 2, 1, 5, kNaN);
      SetElement(problem.lse_tensor, 0, 0, 0, -kInf);
      SetElement(problem.lse_tensor, 3, 2, 0, kInf);
      SetElement(problem.lse_tensor, 6, 3, 0, kNaN);
      if (NeedsOutputs(scorer)) SetElement(problem.o_tensor, 4, 0, 15, kInf);
      const uint32_t single = NeedsOutputs(scorer) ? 5 : 4;
      OneWay([&] {
        const ScoreResult result = Score(request, 2);
        EXPECT_EQ(result.skipped_rows, reduce == Reduce::kPre ? 2 * single : single);
        EXPECT_EQ(Difference(result, PlainScore(request)), "");
      });
    }
  }
}

TEST_P(NonFiniteData, HeadWithoutAnyUsableRowIsAnError) {
  for (const AttentionSource source : {AttentionSource::kQuery, AttentionSource::kQueryOutput}) {
    ScoreProblem problem({4, 2, 40, 3, 8, 8}, 8540);
    const ScoreRequest request = problem.Request(source, {.scorer = Scorer::kAttention});
    for (uint32_t head : {2u, 3u}) {
      for (uint32_t row = 0; row < 3; ++row) SetElement(problem.q_tensor, row, head, 0, kNaN);
    }
    const ErrorInfo info = ScoreError(request);
    EXPECT_EQ(info.reason, ErrorReason::kNoUsableRow);
    EXPECT_EQ(info.field, "inputs");
    EXPECT_EQ(info.index, 1u);
  }
}

TEST_P(NonFiniteData, AllRowsBadIsAnError) {
  ScoreProblem problem({1, 1, 20, 2, 4, 4}, 8550);
  for (float& k : problem.k()) k = kNaN;
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  const ErrorInfo info =
      ScoreError(problem.Request(AttentionSource::kQuery, {.scorer = Scorer::kAttention}));
  EXPECT_EQ(info.reason, ErrorReason::kNoUsableRow);
}

TEST_P(NonFiniteData, LogitsThatOverflowLeaveTheirRowOut) {
  ScoreProblem problem({2, 1, 50, 4, 8, 8}, 8560);
  for (size_t c = 0; c < 8; ++c) problem.q()[c] = 3e38;  // row 0 of head 0
  problem.Place({"contiguous", 0, false, 0}, DType::kF32);
  for (const Scorer scorer : kRowScorers) {
    const ScoreRequest request = problem.Request(AttentionSource::kQuery, {.scorer = scorer});
    OneWay([&] {
      const ScoreResult result = Score(request);
      EXPECT_EQ(result.skipped_rows, 1u);
      EXPECT_EQ(result.usable_rows, std::vector<uint32_t>{7});
      for (const float score : result.scores) EXPECT_TRUE(std::isfinite(score));
    });
  }
}

}  // namespace
}  // namespace kvtriage
