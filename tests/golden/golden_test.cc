// Every device's kernels and the triage of a sequence against the float64 goldens: every case and
// named policy, for every input type, cache layout and source of attention that it can come from.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/engine/triage.h"
#include "service/policy/named_policies.h"
#include "service/policy/pyramid.h"
#include "tests/golden/case_inputs.h"
#include "tests/golden/case_request.h"
#include "tests/golden/device_share.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_policy.h"
#include "tests/golden/golden_set.h"
#include "tests/golden/score_keeper.h"

namespace kvtriage {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, DType> kTypes[] = {
    {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}};

const std::vector<std::string>& Cases() {
  static const std::vector<std::string> ids = GoldenIds("compress");
  return ids;
}

class Golden : public testing::TestWithParam<
                   std::tuple<Device, std::string, std::pair<const char*, DType>>> {
 protected:
  Golden()
      : file_(std::get<1>(GetParam())),
        policy_(PolicyOf(file_["policy"])),
        shape_(ShapeOf(file_["shape"])),
        window_(policy_.window.all ? shape_.rows
                                   : std::min({policy_.window.last, shape_.window, shape_.rows})) {}

  // The case's tensors and their attention, which take a while.
  void MakeLayers() {
    const std::vector<std::string> knobs = file_["knobs"];
    for (uint64_t l = 0; l < file_["layers"]; ++l) {
      CaseLayer layer{};
      layer.storage = StorageOf(file_.head());
      layer.logits = LogitsOf(file_.head());
      layer.inputs =
          MakeCaseInputs(shape_, file_["case_number"].get<uint64_t>() + 1000 * l, knobs,
                         layer.storage, policy_.score.scorer == Scorer::kExpectedAttention);
      layer.attention = Attend(layer.inputs, file_["scale"], layer.logits);
      layers_.push_back(std::move(layer));
    }
    peaked_ = std::find(knobs.begin(), knobs.end(), "peak") != knobs.end();
  }

  static void SetUpTestSuite() { backends_ = std::make_unique<SuiteBackends>(); }
  static void TearDownTestSuite() { backends_.reset(); }

  static Device device() { return std::get<0>(GetParam()); }
  const char* type_name() const { return std::get<2>(GetParam()).first; }
  DType type() const { return std::get<2>(GetParam()).second; }

  CaseSize size() const {
    if (shape_.rows <= 17) return CaseSize::kTiny;
    return shape_.rows <= 300 ? CaseSize::kSmall : CaseSize::kLarge;
  }

  // Where work is long, or the build slow, emulated kernels take a type a case.
  bool TakesType() const {
    const uint64_t work = uint64_t{window_} * shape_.q_heads * shape_.rows * shape_.dk;
    const size_t number = CaseNumber(Cases(), std::get<1>(GetParam()));
    const auto* const at = std::find(std::begin(kTypes), std::end(kTypes), std::get<2>(GetParam()));
    const auto place = static_cast<size_t>(at - std::begin(kTypes));
    return (kPlainBuild && work < 5'000'000) ||
           TakesWay(device(), number, place, std::size(kTypes));
  }
  // Sources and layouts that this case's answers hold for; on a CPU all of them.
  std::vector<std::pair<std::string, size_t>> Ways() const;

  // The answer that holds for inputs of `source` in this type; null when there is none.
  const json* AnswerFor(const std::string& source) const {
    const bool derived =
        source == "ready" || source == "sums";  // of the exact attention, as Q alone is
    const std::string name = source == "given" || source == "given2"
                                 ? "given-" + std::string(type_name())
                             : derived ? "query"
                                       : source;
    for (const json& answer : file_["answers"]) {
      const json& sources = answer.at("sources");
      if (std::find(sources.begin(), sources.end(), name) != sources.end()) return &answer;
    }
    return nullptr;
  }

  bool Offers(const std::string& source) const {
    const Scorer scorer = policy_.score.scorer;
    if (AnswerFor(source) == nullptr) return false;
    if (source == "sums") return scorer == Scorer::kAttention || scorer == Scorer::kVatp;
    if (source != "ready" && source != "given2") return true;
    // The answers do not know the rounding of these A, or of this LSE, and near A = 1 it decides 1
    // - A.
    return !(peaked_ && scorer == Scorer::kDrop);
  }

  // The arrays agree, [lists, rows] of one layer.
  void CompareScores(const double* wanted, const std::vector<float>& scores);
  void CheckScores(std::span<const ScoreResult> results, const json& answer);
  void CheckKept(const json& answer, const TriageResult& result);
  void CheckQuality(const json& answer, const TriageResult& result, double tolerance);

  GoldenFile file_;
  PolicySpec policy_;
  CaseShape shape_;
  std::vector<CaseLayer> layers_;
  uint32_t window_;
  bool peaked_ = false;
  static std::unique_ptr<SuiteBackends> backends_;
};

std::unique_ptr<SuiteBackends> Golden::backends_;

void Golden::CompareScores(const double* wanted, const std::vector<float>& scores) {
  ASSERT_EQ(scores.size(), size_t{shape_.kv_heads} * shape_.rows);
  const json& tolerance = file_["score_tolerance"];
  size_t at = 0;
  for (uint32_t g = 0; g < shape_.kv_heads; ++g, at += shape_.rows) {
    double largest = 0;
    for (uint32_t p = 0; p < shape_.rows; ++p)
      largest = std::max(largest, std::abs(wanted[at + p]));
    for (uint32_t p = 0; p < shape_.rows; ++p) {
      const double want = wanted[at + p], got = scores[at + p];
      const double off = std::abs(got - want);
      ASSERT_LE(off, tolerance.at("of_largest").get<double>() * largest)
          << "head " << g << " row " << p;
      if (std::abs(want) <= tolerance.at("relative_floor").get<double>() * largest) continue;
      ASSERT_LE(off, tolerance.at("relative").get<double>() * std::abs(want))
          << "head " << g << " row " << p << " is " << got;
    }
  }
}

void Golden::CheckScores(std::span<const ScoreResult> results, const json& answer) {
  if (policy_.budget.has_counts()) return;  // heads and layers are pooled differently
  ASSERT_EQ(results.size(), layers_.size());
  const std::vector<double> wanted = file_.Doubles(answer.at("scores"));
  std::vector<double> second;
  if (answer.contains("second_scores")) second = file_.Doubles(answer.at("second_scores"));
  size_t at = 0;
  for (const ScoreResult& result : results) {
    EXPECT_EQ(result.nonfinite_tokens, 0u);
    EXPECT_EQ(result.skipped_rows, 0u);
    CompareScores(&wanted[at], result.scores);
    ASSERT_EQ(result.second_scores.empty(), second.empty());
    if (!second.empty()) CompareScores(&second[at], result.second_scores);
    at += size_t{shape_.kv_heads} * shape_.rows;
  }
}

void Golden::CheckKept(const json& answer, const TriageResult& result) {
  const std::vector<RowList> exact = file_.Lists(answer.at("exact"));
  const std::vector<RowList> pool =
      answer.contains("pool") ? file_.Lists(answer.at("pool")) : std::vector<RowList>(exact.size());
  EXPECT_FALSE(result.noop);
  ASSERT_EQ(result.kept.size(), exact.size());
  const std::vector<RowList> protects =
      answer.contains("protects")
          ? file_.Lists(answer.at("protects"))
          : std::vector<RowList>(exact.size(), file_.Rows(answer.at("protect")));
  for (size_t list = 0; list < exact.size(); ++list) {
    const RowList& protect = protects[list];
    EXPECT_TRUE(std::is_sorted(result.kept[list].begin(), result.kept[list].end()));
    EXPECT_EQ(Difference(protect, result.kept[list]), RowList());
    EXPECT_TRUE(MatchesGolden(Difference(result.kept[list], protect), exact[list], pool[list]))
        << "list " << list << " keeps " << testing::PrintToString(result.kept[list]) << "\nnot "
        << testing::PrintToString(Union(exact[list], protect));
  }
  for (const TriageLayerOutcome& layer : result.layers)
    EXPECT_EQ(layer.trimmed, answer.at("trimmed"));
  if (!answer.contains("stages")) return;
  EXPECT_EQ(result.layers[0].stage1, answer.at("stages").at(0));
  EXPECT_EQ(result.layers[0].stage2, answer.at("stages").at(1));
}

void Golden::CheckQuality(const json& answer, const TriageResult& result, double tolerance) {
  if (!answer.contains("window_mass")) {
    EXPECT_TRUE(result.window_mass.empty());
    return;
  }
  const std::vector<double> mass = file_.Doubles(answer.at("window_mass"));
  EXPECT_THAT(result.window_mass, testing::Pointwise(testing::DoubleNear(tolerance), mass));
  if (!answer.contains("head_quality")) return;
  ASSERT_EQ(result.quality.size(), 1u);
  const LayerQuality& quality = result.quality[0];
  ASSERT_TRUE(quality.has_mass && quality.has_error && quality.has_recall);
  EXPECT_FALSE(result.layers[0].lse_suspect);
  const std::vector<double> heads = file_.Doubles(answer.at("head_quality"));
  for (uint32_t g = 0; g < shape_.kv_heads; ++g) {
    EXPECT_NEAR(quality.head_mass_mean[g], heads[g * 5], tolerance);
    EXPECT_NEAR(quality.head_mass_low[g], heads[g * 5 + 1], tolerance);
    EXPECT_NEAR(quality.head_error[g], heads[g * 5 + 2], tolerance);
    EXPECT_NEAR(quality.head_error_high[g], heads[g * 5 + 3], tolerance);
    EXPECT_NEAR(quality.head_recall[g], heads[g * 5 + 4], tolerance);
  }
  const std::vector<double> layer = file_.Doubles(answer.at("layer_quality"));
  EXPECT_THAT((std::vector<double>{quality.mass_mean, quality.mass_p5, quality.error,
                                   quality.error_p95, quality.recall_mean}),
              testing::Pointwise(testing::DoubleNear(tolerance), layer));
}

std::vector<std::pair<std::string, size_t>> Golden::Ways() const {
  std::vector<std::pair<std::string, size_t>> ways, taken;
  for (const char* source :
       {"none", "query", "given", "given2", "ready", "sums", "before", "moments"}) {
    for (size_t layout = 0; Offers(source) && layout < std::size(kCacheLayouts); ++layout) {
      ways.emplace_back(source, layout);
    }
  }
  // Types of a case take ways that are far apart.
  const size_t number =
      CaseNumber(Cases(), std::get<1>(GetParam())) + 7 * static_cast<size_t>(type());
  for (size_t way = 0; way < ways.size(); ++way) {
    if (TakesWay(device(), number, way, ways.size())) taken.push_back(ways[way]);
  }
  return taken;
}

TEST_P(Golden, EveryLayoutAndSourceGivesTheReferencesAnswer) {
  if (!Affords(device(), size())) GTEST_SKIP() << "too slow for this build";
  if (!TakesType()) GTEST_SKIP() << "another type of this case runs";
  MakeLayers();
  const bool measure = file_["answers"][0].contains("head_quality");
  const std::vector<std::pair<std::string, size_t>> ways = Ways();
  EXPECT_GE(ways.size(), device() == Device::kCpu ? 4 : 1);
  for (const auto& [source, layout] : ways) {
    SCOPED_TRACE(testing::Message() << "from " << source << ", " << kCacheLayouts[layout].name);
    const json& answer = *AnswerFor(source);
    CaseRequest request(layers_, file_["scale"], source, type(), layout, window_,
                        file_["first_layer"]);
    if (policy_.score.scorer == Scorer::kExpectedAttention) {
      request.ExpectQueries(layers_, file_["scale"], source == "moments",
                            file_["policy"].value("cov", true), policy_.protect.sinks, type(),
                            layout);
    }
    const ExplicitRows protect = ExplicitRowsOf(file_["policy"]);
    request.sequence().protect = &protect;
    request.sequence().model_layers =
        file_.Get("model_layers",
                  file_["first_layer"].get<uint32_t>() + static_cast<uint32_t>(layers_.size()));
    ScoreKeeper keeper(backends_->Of(device()));
    TriageResult result;
    const absl::Status status = TriageOne(keeper, request.sequence(), policy_,
                                          {measure, measure, measure}, nullptr, result);
    ASSERT_TRUE(status.ok()) << status;
    CheckScores(keeper.scores(), answer);
    CheckKept(answer, result);
    CheckQuality(answer, result, file_["quality_tolerance"]);
    if (HasFailure()) return;  // the other runs would say the same
  }
}

TEST_P(Golden, ANameExpandsToTheReferencesParts) {
  if (policy_.name.empty() || device() != Device::kCpu) return;  // no kernel has a part in it
  const std::optional<PolicySpec> named = ExpandPolicy(policy_.name);
  ASSERT_TRUE(named.has_value());
  EXPECT_EQ(named->score.scorer, policy_.score.scorer);
  EXPECT_EQ(named->score.reduce, policy_.score.reduce);
  EXPECT_EQ(named->score.pool, policy_.score.pool);
  EXPECT_EQ(named->score.pool_kernel, policy_.score.pool_kernel);
  EXPECT_EQ(named->has_window, policy_.has_window);
  EXPECT_EQ(named->has_reduce, policy_.has_reduce);
  EXPECT_EQ(named->has_pool, policy_.has_pool);
  EXPECT_EQ(named->window, policy_.window);
  EXPECT_EQ(named->protect, policy_.protect);
  EXPECT_EQ(named->budget.adaptive_alpha, policy_.budget.adaptive_alpha);
  EXPECT_EQ(named->budget.pyramid_beta, policy_.budget.pyramid_beta);
  EXPECT_EQ(named->score.lag, policy_.score.lag);
  EXPECT_EQ(named->score.future, policy_.score.future);
  EXPECT_EQ(named->score.first_stage, policy_.score.first_stage);
  EXPECT_EQ(named->score.epsilon, policy_.score.epsilon);
  EXPECT_EQ(named->granularity, policy_.granularity);
}

TEST(GoldenPyramid, SlotsOfEveryLayer) {
  const GoldenFile file("pyramid");
  const uint32_t fixed = file["protected"], beta = file["beta"];
  const std::vector<RowList> wanted = file.Lists(file["slots"]);
  size_t next = 0;
  for (const auto& [layers, rows, budget] :
       file["layers_rows_budget"].get<std::vector<std::array<uint32_t, 3>>>()) {
    const std::vector<uint32_t> slots = PyramidSlots(layers, budget - fixed, rows - fixed, beta, 0);
    EXPECT_EQ(RowList(slots.begin(), slots.end()), wanted[next++]) << layers << " layers, " << rows;
  }
  EXPECT_EQ(next, wanted.size());
}

TEST(GoldenFiles, CoverEveryNamedPolicy) {
  const std::vector<std::string> ids = GoldenIds("compress");
  for (const std::string& name : PolicyNames())
    EXPECT_THAT(ids, testing::Contains("policy-" + name));
}

std::string TestName(const testing::TestParamInfo<Golden::ParamType>& info) {
  std::string name = DeviceLabel(std::get<0>(info.param));
  name += "_" + std::get<1>(info.param) + "_" + std::get<2>(info.param).first;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, Golden,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(Cases()),
                                          testing::ValuesIn(kTypes)),
                         TestName);

}  // namespace
}  // namespace kvtriage
