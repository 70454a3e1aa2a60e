// Divergence and HKVD choice against the float64 goldens, for every input type and cache layout, on
// every device.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtriage/kernels/divergence.h"
#include "service/engine/recompute.h"
#include "tests/golden/device_share.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_set.h"
#include "tests/support/golden_inputs.h"
#include "tests/support/placed_cache.h"

namespace kvtriage {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, DType> kTypes[] = {
    {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}};

const std::vector<std::string>& Cases() {
  static const std::vector<std::string> ids = GoldenIds("hkvd");
  return ids;
}

class GoldenHkvd : public testing::TestWithParam<
                       std::tuple<Device, std::string, std::pair<const char*, DType>>> {
 protected:
  GoldenHkvd() : file_(std::get<1>(GetParam())) {
    const json& shape = file_["shape"];
    rows_ = shape.at("N"), heads_ = shape.at("Hk"), elems_ = shape.at("d");
    const uint64_t number = file_["case_number"];
    const size_t count = size_t{rows_} * heads_ * elems_;
    const std::vector<float> fresh = GridValues(number * 1000 + 3, count),
                             other = GridValues(number * 1000 + 6, count);
    const float factor = file_["factor"];
    fresh_.resize(count), cached_.resize(count);
    for (size_t n = 0; n < count;
         ++n) {  // the streams are [rows, heads, elems], a placed cache takes [heads, rows, elems]
      const size_t row = n / elems_ / heads_, head = n / elems_ % heads_;
      const size_t to = (head * rows_ + row) * elems_ + n % elems_;
      fresh_[to] = fresh[n] * factor;
      cached_[to] = (row % 3 == 0 ? other[n] : fresh[n]) * factor;
    }
  }

  static void SetUpTestSuite() { backends_ = std::make_unique<SuiteBackends>(); }
  static void TearDownTestSuite() { backends_.reset(); }

  static Device device() { return std::get<0>(GetParam()); }

  DivergenceRows Rows(const PlacedCache& cache) const {
    return {cache.layer().k, cache.layer().sequence, 0};
  }

  // One metric's divergences and choices.
  void Check(const json& metric, const PlacedCache& fresh, const PlacedCache& cached) {
    const RowList must = file_.Rows(metric.at("answers").at(0).at("must"));
    RowList all(rows_);
    std::iota(all.begin(), all.end(), 0);
    const RowList candidates = Difference(all, must);
    DivergenceRequest request{Rows(fresh), Rows(cached), candidates, DivergenceMetric::kL2};
    if (metric.at("metric") == "relative") request.metric = DivergenceMetric::kRelative;
    DivergenceResult result;
    ASSERT_TRUE(backends_->Of(device()).Diverge(request, result).ok());
    ASSERT_EQ(result.divergence.size(), candidates.size());
    const std::vector<double> wanted = file_.Doubles(metric.at("divergence"));
    for (size_t i = 0; i < candidates.size(); ++i) {
      const double want = wanted[candidates[i]];
      ASSERT_NEAR(result.divergence[i], want, 1e-5 * want) << "row " << candidates[i];
    }
    for (const json& answer : metric.at("answers"))
      CheckChoice(answer, candidates, result.divergence);
  }

  void CheckChoice(const json& answer, const RowList& candidates,
                   const std::vector<float>& divergence) {
    HkvdSpec spec;
    spec.base = static_cast<uint32_t>(candidates.size());
    ASSERT_EQ(spec.base, answer.at("base"));
    if (answer.contains("ratio")) spec.ratio = answer.at("ratio");
    if (answer.contains("threshold")) spec.threshold = answer.at("threshold");
    const HkvdResult chosen = SelectHkvd(candidates, divergence, spec);
    EXPECT_EQ(chosen.rows, file_.Rows(answer.at("hkvd")));
    EXPECT_EQ(Union(chosen.rows, file_.Rows(answer.at("must"))), file_.Rows(answer.at("rows")));
    EXPECT_NEAR(chosen.gap, answer.at("gap"), 1e-4);
    EXPECT_NEAR(chosen.divergence_share, answer.at("share"), 1e-5);
  }

  GoldenFile file_;
  size_t case_number_ = CaseNumber(Cases(), std::get<1>(GetParam()));
  uint32_t rows_ = 0, heads_ = 0, elems_ = 0;
  std::vector<float> fresh_, cached_;  // [heads, rows, elems]
  static std::unique_ptr<SuiteBackends> backends_;
};

std::unique_ptr<SuiteBackends> GoldenHkvd::backends_;

TEST_P(GoldenHkvd, EveryLayoutGivesTheReferencesRows) {
  if (!Affords(device(), CaseSize::kSmall)) GTEST_SKIP() << "too slow for this build";
  const DType type = std::get<2>(GetParam()).second;
  const PlacedCache fresh(kCacheLayouts[0], type, heads_, heads_, rows_, fresh_, fresh_);
  for (const CacheLayout& layout : kCacheLayouts) {
    const auto way = static_cast<size_t>(&layout - kCacheLayouts);
    if (!TakesWay(device(), case_number_, way, std::size(kCacheLayouts))) continue;
    const PlacedCache cached(layout, type, heads_, heads_, rows_, cached_, cached_);
    for (const json& metric : file_["metrics"]) {
      SCOPED_TRACE(testing::Message() << layout.name << ", " << metric.at("metric"));
      Check(metric, fresh, cached);
    }
  }
}

// No kernel has a part in these.
TEST_P(GoldenHkvd, ClassesAndLimitsAreTheReferences) {
  SelectRecomputeSpec spec;
  spec.rows = rows_;
  spec.suffix = file_["suffix"];
  const json& answer = file_["metrics"].at(0).at("answers").at(0);
  const RowClasses classes = ClassifyRows(spec);
  EXPECT_EQ(classes.must, file_.Rows(answer.at("must")));
  EXPECT_EQ(classes.candidates.size(), answer.at("base"));
  spec.positions = file_.Rows(file_["positions"]);
  EXPECT_EQ(KeyLimits(spec, file_.Rows(answer.at("rows"))), file_.Rows(file_["limits"]));
}

std::string TestName(const testing::TestParamInfo<GoldenHkvd::ParamType>& info) {
  std::string name = DeviceLabel(std::get<0>(info.param));
  name += "_" + std::get<1>(info.param) + "_" + std::get<2>(info.param).first;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, GoldenHkvd,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(Cases()),
                                          testing::ValuesIn(kTypes)),
                         TestName);

}  // namespace
}  // namespace kvtriage
