#include "service/observe/metrics.h"

#include <limits>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/observe/catalogue.h"
#include "tests/unit/observe/metrics_page.h"

namespace kvtriage {
namespace {

using ::testing::Contains;
using ::testing::Pair;

MetricsSettings WithDefault(const std::string& policy) {
  MetricsSettings settings;
  settings.default_policy = policy;
  settings.queue_limit = 256;
  return settings;
}

Decision KeptDecision(std::string_view policy) {
  Decision decision;
  decision.policy = policy;
  decision.outcome = DecisionOutcome::kApplied;
  decision.considered = 100;
  decision.kept_sink = 4;
  decision.kept_middle = 20.5;
  decision.kept_recent = 8;
  decision.evicted_bytes = 1000;
  decision.reclaimable_bytes = 600;
  decision.moved_bytes = 200;
  return decision;
}

std::string TypeName(catalogue::Type type) {
  switch (type) {
    case catalogue::Type::kCounter:
      return "counter";
    case catalogue::Type::kGauge:
      return "gauge";
    case catalogue::Type::kHistogram:
      return "histogram";
    case catalogue::Type::kSummary:
      return "summary";
  }
  return "";
}

TEST(Metrics, PageHoldsTheCatalogueAndNothingElse) {
  Metrics metrics(WithDefault("snapkv"));
  metrics.OnCacheRegistered(32);
  std::map<std::string, std::string> expected;
  for (const catalogue::Metric* metric : catalogue::kAll) {
    expected[metric->name] = TypeName(metric->type);
  }
  EXPECT_EQ(TypesOf(metrics.Page()), expected);
}

TEST(Metrics, EverySeriesExistsFromTheStartAtZero) {
  const Metrics metrics(WithDefault("snapkv"));
  const auto series = SeriesOf(metrics.Page());
  for (const auto& [name, value] : series) {
    const bool tells_something = name.starts_with("process_") ||
                                 name.find("_info{") != std::string::npos ||
                                 name.starts_with("kvtriage_queue_limit_jobs");
    if (!tells_something) {
      EXPECT_EQ(value, 0) << name;
    }
  }
  for (const ErrorReason reason : AllReasons()) {
    const std::string label(ReasonName(reason));
    EXPECT_TRUE(series.contains("kvtriage_rejections_total{reason=\"" + label + "\"}")) << label;
  }
  for (const char* method : catalogue::kMethodValues) {
    EXPECT_TRUE(series.contains(std::string("kvtriage_rpc_requests_total{method=\"") + method +
                                "\",result=\"shed\"}"))
        << method;
  }
}

TEST(Metrics, ReasonsOfTheCatalogueAreThoseOfTheErrors) {
  std::set<std::string> catalogued(catalogue::kReasonValues.begin(),
                                   catalogue::kReasonValues.end());
  std::set<std::string> reasons;
  for (const ErrorReason reason : AllReasons()) reasons.insert(std::string(ReasonName(reason)));
  EXPECT_EQ(catalogued, reasons);
}

TEST(Metrics, EnumsNameTheLabelValuesInOrder) {
  EXPECT_EQ(std::string(catalogue::kStageValues[static_cast<size_t>(Stage::kValidate)]),
            "validate");
  EXPECT_EQ(std::string(catalogue::kStageValues[static_cast<size_t>(Stage::kReply)]), "reply");
  EXPECT_EQ(std::string(catalogue::kOutcomeValues[static_cast<size_t>(DecisionOutcome::kFailed)]),
            "failed");
  EXPECT_EQ(std::string(catalogue::kCauseValues[static_cast<size_t>(EndCause::kProtocol)]),
            "protocol");
  EXPECT_EQ(
      std::string(catalogue::kCodeValues[static_cast<size_t>(absl::StatusCode::kUnauthenticated)]),
      "UNAUTHENTICATED");
  EXPECT_EQ(RpcMethodName(RpcMethod::kSelectRecompute), "SelectRecompute");
  EXPECT_EQ(RpcMethodName(RpcMethod::kRerotate), "Rerotate");
  EXPECT_EQ(RpcMethodName(RpcMethod::kFuse), "Fuse");
}

TEST(Metrics, StaysBelowTheSeriesLimit) {
  Metrics metrics(WithDefault("snapkv"));
  metrics.OnCacheRegistered(1'000'000);  // the most layer groups
  uint32_t ceiling = 0;
  for (const catalogue::Metric* metric : catalogue::kAll) ceiling += metric->max_series;
  const auto series = SeriesOf(metrics.Page());
  EXPECT_LE(series.size(), ceiling);
  EXPECT_LT(ceiling, catalogue::kSeriesLimit);
}

TEST(Metrics, DecisionCountsUnderTheDefaultPolicyOrOther) {
  Metrics metrics(WithDefault("snapkv"));
  metrics.OnDecision(KeptDecision("snapkv"));
  metrics.OnDecision(KeptDecision("h2o"));
  metrics.OnDecision(KeptDecision(""));
  const auto series = SeriesOf(metrics.Page());
  EXPECT_THAT(series,
              Contains(Pair("kvtriage_decisions_total{outcome=\"applied\",policy=\"snapkv\"}", 1)));
  EXPECT_THAT(series,
              Contains(Pair("kvtriage_decisions_total{outcome=\"applied\",policy=\"other\"}", 2)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_tokens_considered_total{policy=\"snapkv\"}", 100)));
  EXPECT_THAT(
      series,
      Contains(Pair("kvtriage_tokens_kept_total{policy=\"snapkv\",region=\"middle\"}", 20.5)));
  EXPECT_THAT(series,
              Contains(Pair("kvtriage_kept_ratio_bucket{policy=\"snapkv\",le=\"0.4\"}", 1)));
  EXPECT_THAT(series,
              Contains(Pair("kvtriage_kept_ratio_bucket{policy=\"snapkv\",le=\"0.3\"}", 0)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_evicted_bytes_total{device=\"cpu\"}", 3000)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_reclaimable_bytes_total{device=\"cpu\"}", 1800)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_moved_bytes_total{device=\"cpu\"}", 600)));
}

TEST(Metrics, RunningScoresShowWhatTheyHoldAndMayHold) {
  MetricsSettings settings;
  settings.score_limit = 5000;
  Metrics metrics(settings);
  metrics.OnScores(1200);
  metrics.OnScores(800);
  metrics.OnScoresDropped();
  const auto series = SeriesOf(metrics.Page());
  EXPECT_THAT(series, Contains(Pair("kvtriage_running_score_bytes", 800)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_running_score_limit_bytes", 5000)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_running_scores_dropped_total", 1)));
}

TEST(Metrics, WithoutADefaultEveryPolicyIsOther) {
  Metrics metrics(WithDefault(""));
  metrics.OnDecision(KeptDecision("snapkv"));
  metrics.OnDecision(KeptDecision(""));
  const auto series = SeriesOf(metrics.Page());
  EXPECT_THAT(series,
              Contains(Pair("kvtriage_decisions_total{outcome=\"applied\",policy=\"other\"}", 2)));
  EXPECT_FALSE(series.contains("kvtriage_decisions_total{outcome=\"applied\",policy=\"snapkv\"}"));
}

TEST(Metrics, FailedDecisionCountsNoTokens) {
  Metrics metrics(WithDefault(""));
  Decision decision = KeptDecision("");
  decision.outcome = DecisionOutcome::kFailed;
  metrics.OnDecision(decision);
  const auto series = SeriesOf(metrics.Page());
  EXPECT_THAT(series,
              Contains(Pair("kvtriage_decisions_total{outcome=\"failed\",policy=\"other\"}", 1)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_tokens_considered_total{policy=\"other\"}", 0)));
  EXPECT_THAT(series, Contains(Pair("kvtriage_kept_ratio_count{policy=\"other\"}", 0)));
}

// 40 pairs: the worst 5 % are two, so the tail is the second lowest mass and the 38th error.
TEST(Metrics, MassAndErrorHaveAMeanAndATail) {
  Metrics metrics(WithDefault(""));
  std::vector<double> mass;
  LayerQuality quality;
  quality.has_error = true;
  quality.error = 0.02;
  for (int i = 0; i < 40; ++i) {
    mass.push_back(i == 0 ? 0.1 : i == 1 ? 0.6 : 0.985);
    quality.head_error.push_back(i == 7 ? 0.9 : i == 8 ? 0.4 : i == 9 ? 0.2 : 0.002);
  }
  Decision decision = KeptDecision("");
  decision.mass = mass;
  decision.quality = {&quality, 1};
  metrics.OnDecision(decision);
  const auto series = SeriesOf(metrics.Page());
  const double mean = (0.1 + 0.6 + 38 * 0.985) / 40;
  EXPECT_NEAR(
      series.at("kvtriage_attention_mass_retained_ratio_sum{policy=\"other\",role=\"active\"}"),
      mean, 1e-6);
  EXPECT_DOUBLE_EQ(series.at("kvtriage_attention_mass_retained_tail_ratio_sum{policy=\"other\"}"),
                   0.6);
  EXPECT_DOUBLE_EQ(series.at("kvtriage_output_error_ratio_sum{policy=\"other\",role=\"active\"}"),
                   0.02);
  EXPECT_DOUBLE_EQ(series.at("kvtriage_output_error_tail_ratio_sum{policy=\"other\"}"), 0.2);
  EXPECT_EQ(series.at("kvtriage_oracle_recall_ratio_count{policy=\"other\",role=\"active\"}"), 0);
}

TEST(Metrics, WhatIsNotANumberIsNotObserved) {
  Metrics metrics(WithDefault(""));
  const std::vector<double> mass = {std::numeric_limits<double>::quiet_NaN()};
  Decision decision = KeptDecision("");
  decision.mass = mass;
  metrics.OnDecision(decision);
  BlendDecision blend;
  blend.reused = 3;
  blend.recompute = 2;
  blend.covered_divergence = 0.5;
  blend.left_divergence = -1;  // not known
  metrics.OnBlend(blend);
  metrics.OnBlendWrite({5, 4096});
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(
      series.at("kvtriage_attention_mass_retained_ratio_count{policy=\"other\",role=\"active\"}"),
      0);
  EXPECT_EQ(series.at("kvtriage_blend_left_divergence_ratio_count"), 0);
  EXPECT_EQ(series.at("kvtriage_blend_covered_divergence_ratio_count"), 1);
  EXPECT_EQ(series.at("kvtriage_blend_tokens_total{verdict=\"recompute\"}"), 2);
  EXPECT_EQ(series.at("kvtriage_blend_tokens_total{verdict=\"fused\"}"), 5);
}

TEST(Metrics, LayersAreGroupedByTheFirstModel) {
  Metrics metrics(WithDefault(""));
  metrics.OnCacheRegistered(80);  // groups of two
  metrics.OnCacheRegistered(7);   // too late
  const std::vector<Decision::Layer> layers = {
      {0, 0.2, 0.9}, {1, 0.4, -1}, {79, 0.5, 0.8}, {500, 0.7, 0.6}};
  Decision decision = KeptDecision("");
  decision.layers = layers;
  metrics.OnDecision(decision);
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("kvtriage_layer_kept_ratio_count{layer=\"0\"}"), 2);
  EXPECT_EQ(series.at("kvtriage_layer_mass_retained_ratio_count{layer=\"0\"}"), 1);
  EXPECT_EQ(series.at("kvtriage_layer_kept_ratio_count{layer=\"78\"}"), 2)
      << "beyond the model: the last group";
  EXPECT_FALSE(series.contains("kvtriage_layer_kept_ratio_count{layer=\"1\"}"));
}

TEST(Metrics, PerLayerCanBeSwitchedOff) {
  MetricsSettings settings = WithDefault("");
  settings.per_layer = false;
  Metrics metrics(settings);
  metrics.OnCacheRegistered(8);
  EXPECT_FALSE(TypesOf(metrics.Page()).contains("kvtriage_layer_kept_ratio"));
}

TEST(Metrics, RpcsCountByMethodCodeAndReason) {
  Metrics metrics(WithDefault(""));
  metrics.OnRpc(RpcMethod::kCompress, {absl::StatusCode::kOk, std::nullopt, 0.002});
  metrics.OnRpc(RpcMethod::kListRegions, {absl::StatusCode::kOk, std::nullopt, 0.002});
  metrics.OnRpc(RpcMethod::kAttach, {absl::StatusCode::kOk, std::nullopt, 4000});
  metrics.OnRpc(RpcMethod::kCompress,
                {absl::StatusCode::kResourceExhausted, ErrorReason::kQueueFull, 0.1});
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("kvtriage_rpc_requests_total{method=\"Compress\",result=\"ok\"}"), 1);
  EXPECT_EQ(series.at("kvtriage_rpc_requests_total{method=\"Compress\",result=\"shed\"}"), 1);
  EXPECT_EQ(series.at("kvtriage_rpc_codes_total{code=\"RESOURCE_EXHAUSTED\"}"), 1);
  EXPECT_EQ(series.at("kvtriage_rejections_total{reason=\"queue_full\"}"), 1);
  EXPECT_EQ(series.at("kvtriage_rpc_duration_seconds_count{method=\"Compress\"}"), 2);
  EXPECT_EQ(series.at("kvtriage_rpc_duration_seconds_count{method=\"other\"}"), 1)
      << "a lease is not timed";
}

TEST(Metrics, ResultClasses) {
  const auto name = [](absl::StatusCode code, std::optional<ErrorReason> reason) {
    return std::string(catalogue::kResultValues[ResultClass({code, reason, 0})]);
  };
  EXPECT_EQ(name(absl::StatusCode::kOk, std::nullopt), "ok");
  EXPECT_EQ(name(absl::StatusCode::kInvalidArgument, ErrorReason::kFieldInvalid), "client_error");
  EXPECT_EQ(name(absl::StatusCode::kCancelled, std::nullopt), "client_error");
  EXPECT_EQ(name(absl::StatusCode::kUnavailable, ErrorReason::kDraining), "shed");
  EXPECT_EQ(name(absl::StatusCode::kUnavailable, ErrorReason::kDeviceSick), "server_error");
  EXPECT_EQ(name(absl::StatusCode::kDeadlineExceeded, ErrorReason::kDeadlineUnmeetable), "shed");
  EXPECT_EQ(name(absl::StatusCode::kInternal, ErrorReason::kInternal), "server_error");
  EXPECT_EQ(name(absl::StatusCode::kResourceExhausted, ErrorReason::kSessionBusy), "shed");
}

TEST(Metrics, MappedMemoryGoesBackToZero) {
  Metrics metrics(WithDefault(""));
  metrics.OnMapped(kHostMemory, 4096);
  metrics.OnMapped(kHostMemory, 8192);
  metrics.OnRetiring();
  auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("kvtriage_regions{device=\"cpu\"}"), 2);
  EXPECT_EQ(series.at("kvtriage_unmaps_pending"), 1);
  metrics.OnUnmapped(kHostMemory, 8192);
  metrics.OnRetiring();
  metrics.OnUnmapped(kHostMemory, 4096);
  series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("kvtriage_mapped_bytes{device=\"cpu\"}"), 0);
  EXPECT_EQ(series.at("kvtriage_regions{device=\"cpu\"}"), 0);
  EXPECT_EQ(series.at("kvtriage_unmaps_pending"), 0);
}

TEST(Metrics, DevicesHaveSeriesOfTheirOwn) {
  MetricsSettings settings = WithDefault("");
  settings.cuda_devices = {"cuda:0", "cuda:3"};
  Metrics metrics(settings);
  EXPECT_EQ(metrics.OfDevice(kHostMemory), &metrics);
  metrics.OfDevice(2)->OnQueue(4);
  metrics.OfDevice(2)->OnStage(Stage::kScore, 0.5);
  metrics.OfDevice(1)->OnBlendWrite({3, 768});
  metrics.OnMapped(2, 4096);
  const Decision decision = KeptDecision("");
  metrics.OfDevice(1)->OnDecision(decision);
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("kvtriage_queue_jobs{device=\"cuda:3\"}"), 4);
  EXPECT_EQ(series.at("kvtriage_queue_jobs{device=\"cpu\"}"), 0);
  EXPECT_EQ(series.at("kvtriage_device_busy_seconds_total{device=\"cuda:3\",stage=\"score\"}"),
            0.5);
  EXPECT_EQ(series.at("kvtriage_device_busy_seconds_total{device=\"cpu\",stage=\"score\"}"), 0);
  EXPECT_EQ(series.at("kvtriage_moved_bytes_total{device=\"cuda:0\"}"),
            768 + static_cast<double>(decision.moved_bytes));
  EXPECT_EQ(series.at("kvtriage_moved_bytes_total{device=\"cpu\"}"), 0);
  EXPECT_EQ(series.at("kvtriage_regions{device=\"cuda:3\"}"), 1);
  EXPECT_EQ(series.at("kvtriage_mapped_bytes{device=\"cuda:3\"}"), 4096);
  // What has no such label is counted together.
  EXPECT_EQ(series.at("kvtriage_blend_tokens_total{verdict=\"fused\"}"), 3);
}

// Series per request, session or tag would grow without bound.
// https://github.com/zakura-core/zakura/pull/697
// https://github.com/jupp0r/prometheus-cpp/issues/720
// https://github.com/jupp0r/prometheus-cpp/issues/646
TEST(Metrics, NumberOfSeriesDoesNotDependOnTraffic) {
  Metrics metrics(WithDefault("snapkv"));
  metrics.OnCacheRegistered(32);
  const size_t before = SeriesOf(metrics.Page()).size();
  for (int i = 0; i < 100'000; ++i) {
    metrics.OnCacheRegistered(static_cast<uint32_t>(i));
    metrics.OnMapped(kHostMemory, 4096);
    metrics.OnUnmapped(kHostMemory, 4096);
    metrics.OnRpc(RpcMethod::kRegisterRegions, {absl::StatusCode::kOk, std::nullopt, 0.001});
  }
  for (int i = 0; i < 1'000; ++i) metrics.OnDecision(KeptDecision("policy-" + std::to_string(i)));
  const std::string page = metrics.Page();
  EXPECT_EQ(SeriesOf(page).size(), before);
  EXPECT_LT(page.size(), size_t{1} << 20);
}

TEST(Metrics, CountsFromManyThreadsAreAllThere) {
  Metrics metrics(WithDefault(""));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 1'000; ++i) {
        metrics.OnDecision(KeptDecision(""));
        metrics.OnStage(Stage::kScore, 0.001);
        metrics.OnCacheRegistered(16);
        if (i % 100 == 0) metrics.Page();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("kvtriage_decisions_total{outcome=\"applied\",policy=\"other\"}"), 4000);
  EXPECT_NEAR(series.at("kvtriage_device_busy_seconds_total{device=\"cpu\",stage=\"score\"}"), 4,
              1e-9);
}

}  // namespace
}  // namespace kvtriage
