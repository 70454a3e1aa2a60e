// What becomes of ties, masks, damaged numbers and statistics layouts on the way to a kept set.
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtriage/kernels/backend.h"
#include "tests/unit/engine/small_sequence.h"

namespace kvtriage {
namespace {

using testing::ElementsAre;
using Rows = std::vector<int32_t>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Rows KeptOfSums(const std::vector<double>& sums, uint32_t budget) {
  SmallSequence small;
  small.AddSumsLayer(1, sums);
  PolicySpec policy = PlainPolicy();
  policy.budget.kept_tokens = budget;
  return Triage(small.sequence, policy).kept[0];
}

Rows FirstRows(size_t count) {
  Rows rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// https://github.com/pytorch/pytorch/issues/127196 ,
// https://github.com/pytorch/pytorch/issues/27542
TEST(RanksDisagree, TiesGoToTheLowerRow) {
  const std::vector<double> sums = {3, 2, 3, 2, 1, 1};
  EXPECT_THAT(KeptOfSums(sums, 1), ElementsAre(0));
  EXPECT_THAT(KeptOfSums(sums, 2), ElementsAre(0, 2));
  EXPECT_THAT(KeptOfSums(sums, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(KeptOfSums(sums, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(KeptOfSums(sums, 5), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(KeptOfSums(std::vector<double>(1000, 0.25), 10), FirstRows(10));
}

TEST(RanksDisagree, EveryRepeatAndThreadCountGivesTheSameLists) {
  SmallSequence small;
  small.AddGridLayer(1000, 4, 2, 300, 16, 20);
  small.AddGridLayer(2000, 4, 2, 300, 16, 20);
  const PolicySpec policy = NamedPolicy("adakv+obc-joint", 90);
  const TriageResult first = Triage(small.sequence, policy);
  for (const int threads : {1, 2, 3, 8}) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(threads);
    for (int repeat = 0; repeat < 25; ++repeat) {
      TriageResult result;
      ASSERT_TRUE(TriageOne(*backend, small.sequence, policy, {}, nullptr, result).ok());
      ASSERT_EQ(result.kept, first.kept) << threads << " threads";
      ASSERT_EQ(result.window_mass, first.window_mass);
    }
  }
}

// https://github.com/Zefan-Cai/KVCache-Factory/issues/49
TEST(NoCausalMask, ARowVotesOnlyForRowsUpToItself) {
  SmallSequence small;
  TriageLayer& layer = small.AddLayer(1, 1, 4, {1, 0, 0, 3}, {1, 1, 1, 1});
  layer.input.source = AttentionSource::kQuery;
  layer.input.q = small.Tensor({1, 1, 1, 1}, 1, 4, 1);
  PolicySpec policy = NamedPolicy("h2o", 1);
  policy.protect.recent_share = 0;
  const TriageResult result = Triage(small.sequence, policy);
  EXPECT_THAT(result.kept, ElementsAre(ElementsAre(0)));
  EXPECT_NEAR(result.window_mass[0], 2.4168 / 4, 1e-4);
}

// https://github.com/pytorch/pytorch/issues/16762 , https://github.com/alibaba/rtp-llm/pull/587
TEST(NonFiniteData, ReadyScoresRankInOneTotalOrder) {
  const std::vector<double> sums = {.1, kInf, kNan, .3, .2, -kNan, .3, -kInf};
  const Rows joins = {1, 3, 6, 4, 0, 7, 2};
  for (uint32_t budget = 1; budget < sums.size(); ++budget) {
    Rows wanted(joins.begin(), joins.begin() + budget);
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(KeptOfSums(sums, budget), wanted);
  }
  EXPECT_EQ(KeptOfSums(std::vector<double>(8, -kInf), 3), FirstRows(3));
  EXPECT_EQ(KeptOfSums(std::vector<double>(8, kNan), 3), FirstRows(3));
}

TEST(NonFiniteData, MassOfDamagedSumsStaysANumber) {
  SmallSequence small;
  small.AddSumsLayer(1, {.25, kNan, kInf, .75});
  PolicySpec policy = PlainPolicy();
  policy.budget.kept_tokens = 2;
  const TriageResult result = Triage(small.sequence, policy);
  EXPECT_THAT(result.kept[0], ElementsAre(2, 3));
  EXPECT_THAT(result.window_mass, ElementsAre(0.75));
}

TEST(NonFiniteData, ADamagedRowGoesFirstAndMovesNobody) {
  for (const char* name : {"snapkv", "snapkv+obc-value", "snapkv+obc-joint", "snapkv+drop"}) {
    for (const bool in_values : {false, true}) {
      SCOPED_TRACE(testing::Message() << name << (in_values ? ", in V" : ", in K"));
      SmallSequence small;
      TriageLayer& layer = small.AddGridLayer(1000, 2, 1, 40, 8, 10);
      const KvView& view = in_values ? layer.rows.v : layer.rows.k;
      StoreElement(RowAddress(view, layer.rows.sequence, 0, 5) + 4, DType::kF32,
                   in_values ? NAN : INFINITY);
      PolicySpec policy = NamedPolicy(name, 39);
      policy.score.pool = Pool::kNone;
      policy.protect = {};
      const TriageResult result = Triage(small.sequence, policy);
      const bool harmless =
          in_values && policy.score.scorer == Scorer::kAttention;  // V is not read
      EXPECT_EQ(result.layers[0].nonfinite_tokens, harmless ? 0u : 1u);
      EXPECT_EQ(std::count(result.kept[0].begin(), result.kept[0].end(), 5), harmless);
    }
  }
}

// https://github.com/Dao-AILab/flash-attention/pull/970 ,
// https://github.com/pytorch/pytorch/pull/187899
class StatisticsLayout : public testing::Test {
 protected:
  StatisticsLayout() { layer_ = &small_.AddGridLayer(1000, 3, 3, 6, 4, 3); }

  // Natural LSE of query head h, row i, and its output, in float64.
  void Attend() {
    const CaseRows k = Read(layer_->rows.k), v = Read(layer_->rows.v);
    for (uint32_t h = 0; h < 3; ++h) {
      for (uint32_t i = 0; i < 3; ++i) {
        double sum = 0, out[4] = {};
        for (uint32_t p = 0; p < 4 + i; ++p) {
          double z = 0;
          for (uint32_t c = 0; c < 4; ++c)
            z += double{LoadElement(layer_->input.q.At(i, h, c), DType::kF32)} * k[h][p][c];
          const double e = std::exp(z * layer_->input.scale);
          sum += e;
          for (uint32_t c = 0; c < 4; ++c) out[c] += e * v[h][p][c];
        }
        lse_.push_back(std::log(sum));
        for (const double x : out) o_.push_back(x / sum);
      }
    }
  }

  TriageResult Run(const std::vector<double>& lse, LseBase base, bool rows_outermost) {
    AttentionInput& input = layer_->input;
    input.source = AttentionSource::kQueryOutput;
    input.o = small_.Tensor(o_, 3, 3, 4);
    input.lse = small_.Tensor(lse, 3, 3, 1);
    input.lse_base = base;
    if (rows_outermost) std::swap(input.lse.row_stride, input.lse.head_stride);
    PolicySpec policy = PlainPolicy(Scorer::kObcJoint);
    policy.window = {false, 3};
    policy.budget.kept_tokens = 3;
    return Triage(small_.sequence, policy, {true, true, false});
  }

  std::vector<double> Transposed() const {
    std::vector<double> out(9);
    for (size_t n = 0; n < 9; ++n) out[n % 3 * 3 + n / 3] = lse_[n];
    return out;
  }

  using CaseRows = std::vector<std::vector<std::vector<double>>>;
  CaseRows Read(const KvView& view) const {
    CaseRows rows(3, std::vector<std::vector<double>>(6, std::vector<double>(4)));
    for (uint32_t h = 0; h < 3; ++h) {
      for (uint32_t p = 0; p < 6; ++p) {
        for (uint32_t c = 0; c < 4; ++c)
          rows[h][p][c] =
              LoadElement(RowAddress(view, layer_->rows.sequence, h, p) + c * 4, DType::kF32);
      }
    }
    return rows;
  }

  SmallSequence small_;
  TriageLayer* layer_;
  std::vector<double> lse_, o_;  // [heads, rows], [heads, rows, 4]
};

TEST_F(StatisticsLayout, TheStridesSayWhichAxisIsWhich) {
  Attend();
  const TriageResult heads_first = Run(lse_, LseBase::kE, false);
  EXPECT_FALSE(heads_first.layers[0].lse_suspect);
  const TriageResult rows_first = Run(Transposed(), LseBase::kE, true);
  EXPECT_EQ(rows_first.kept, heads_first.kept);
  EXPECT_EQ(rows_first.window_mass, heads_first.window_mass);
  EXPECT_FALSE(rows_first.layers[0].lse_suspect);
  const TriageResult wrong =
      Run(lse_, LseBase::kE, true);  // heads = rows: only the numbers can tell
  EXPECT_TRUE(wrong.layers[0].lse_suspect);
}

TEST_F(StatisticsLayout, TheBaseIsPartOfTheNumber) {
  Attend();
  const TriageResult natural = Run(lse_, LseBase::kE, false);
  std::vector<double> base2 = lse_;
  for (double& x : base2) x /= std::numbers::ln2;
  const TriageResult converted = Run(base2, LseBase::k2, false);
  EXPECT_EQ(converted.kept, natural.kept);
  EXPECT_NEAR(converted.quality[0].mass_mean, natural.quality[0].mass_mean, 1e-5);
  EXPECT_FALSE(converted.layers[0].lse_suspect);
  EXPECT_TRUE(Run(base2, LseBase::kE, false).layers[0].lse_suspect);
}

TEST_F(StatisticsLayout, AnEmptyRowIsLeftOut) {
  Attend();
  lse_[4] = -kInf;
  const TriageResult result = Run(lse_, LseBase::kE, false);
  EXPECT_EQ(result.layers[0].skipped_rows, 1u);
  EXPECT_EQ(result.layers[0].nonfinite_tokens, 0u);
  EXPECT_TRUE(result.quality[0].has_error);
}

}  // namespace
}  // namespace kvtriage
