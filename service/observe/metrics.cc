#include "service/observe/metrics.h"

#include <cmath>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "prometheus/text_serializer.h"
#include "service/observe/catalogue.h"
#include "service/observe/layer_metrics.h"
#include "service/observe/metric_series.h"
#include "service/observe/process_metrics.h"

namespace kvtriage {
namespace {

using catalogue::Metric;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr size_t kTimedOther = catalogue::kTimedValues.size() - 1;

// Of rpc_duration_seconds: an own series for the calls that do work.
size_t TimedIndex(RpcMethod method) {
  for (size_t i = 0; i < kTimedOther; ++i) {
    if (RpcMethodName(method) == catalogue::kTimedValues[i]) return i;
  }
  return kTimedOther;
}

void ObserveFinite(Histogram& histogram, double value) {
  if (std::isfinite(value)) histogram.Observe(value);
}

double Mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Everything that has the label `policy`.
struct PolicySeries {
  PolicySeries(SeriesMaker make, const std::string& policy)
      : outcomes(make.Counters(catalogue::kDecisionsTotal, "outcome", catalogue::kOutcomeValues,
                               {{"policy", policy}})),
        considered(make.Counter(catalogue::kTokensConsideredTotal, {{"policy", policy}})),
        kept(make.Counters(catalogue::kTokensKeptTotal, "region", catalogue::kRegionValues,
                           {{"policy", policy}})),
        kept_ratio(
            make.Histogram(catalogue::kKeptRatio, catalogue::kShareBuckets, {{"policy", policy}})),
        mass(make.Histogram(catalogue::kAttentionMassRetainedRatio, catalogue::kNearOneBuckets,
                            Active(policy))),
        mass_tail(make.Histogram(catalogue::kAttentionMassRetainedTailRatio,
                                 catalogue::kNearOneBuckets, {{"policy", policy}})),
        error(
            make.Histogram(catalogue::kOutputErrorRatio, catalogue::kErrorBuckets, Active(policy))),
        error_tail(make.Histogram(catalogue::kOutputErrorTailRatio, catalogue::kErrorBuckets,
                                  {{"policy", policy}})),
        recall(make.Histogram(catalogue::kOracleRecallRatio, catalogue::kShareBuckets,
                              Active(policy))) {}

  static Labels Active(const std::string& policy) {
    return {{"policy", policy}, {"role", catalogue::kRoleValues[0]}};
  }

  std::array<Counter*, catalogue::kOutcomeValues.size()> outcomes;
  Counter& considered;
  std::array<Counter*, catalogue::kRegionValues.size()> kept;
  Histogram &kept_ratio, &mass, &mass_tail, &error, &error_tail, &recall;
};

void ObserveMass(PolicySeries& series, std::span<const double> mass) {
  if (mass.empty()) return;
  ObserveFinite(series.mass, Mean(mass));
  ObserveFinite(series.mass_tail, Percentile({mass.begin(), mass.end()}, 0.05));
}

void ObserveQuality(PolicySeries& series, std::span<const LayerQuality> layers) {
  std::vector<double> errors, head_errors, recalls;
  for (const LayerQuality& layer : layers) {
    if (layer.has_error) {
      errors.push_back(layer.error);
      head_errors.insert(head_errors.end(), layer.head_error.begin(), layer.head_error.end());
    }
    if (layer.has_recall) recalls.push_back(layer.recall_mean);
  }
  if (!errors.empty()) ObserveFinite(series.error, Mean(errors));
  if (!head_errors.empty()) {
    ObserveFinite(series.error_tail, Percentile(std::move(head_errors), 0.95));
  }
  if (!recalls.empty()) ObserveFinite(series.recall, Mean(recalls));
}

}  // namespace

// What is counted by device.
struct DeviceSeries {
  DeviceSeries(SeriesMaker& make, const Labels& device)
      : evicted(make.Counter(catalogue::kEvictedBytesTotal, device)),
        reclaimable(make.Counter(catalogue::kReclaimableBytesTotal, device)),
        moved(make.Counter(catalogue::kMovedBytesTotal, device)),
        regions(make.Gauge(catalogue::kRegions, device)),
        mapped(make.Gauge(catalogue::kMappedBytes, device)),
        queue(make.Gauge(catalogue::kQueueJobs, device)),
        busy(make.Counters(catalogue::kDeviceBusySecondsTotal, "stage", catalogue::kWorkValues,
                           device)) {}

  void OnStage(std::string_view stage, double seconds) {
    for (size_t i = 0; i < catalogue::kWorkValues.size(); ++i) {
      if (stage == catalogue::kWorkValues[i]) busy[i]->Increment(seconds);
    }
  }
  void OnDecision(const Decision& decision) {
    if (decision.outcome == DecisionOutcome::kFailed) return;
    evicted.Increment(static_cast<double>(decision.evicted_bytes));
    reclaimable.Increment(static_cast<double>(decision.reclaimable_bytes));
    moved.Increment(static_cast<double>(decision.moved_bytes));
  }

  Counter &evicted, &reclaimable, &moved;
  Gauge &regions, &mapped, &queue;
  std::array<Counter*, catalogue::kWorkValues.size()> busy;
};

struct Metrics::Series {
  explicit Series(const MetricsSettings& settings)
      : default_policy(settings.default_policy), per_layer(settings.per_layer) {
    if (!default_policy.empty()) policies.emplace_back(make, default_policy);
    policies.emplace_back(make, "other");
    for (size_t i = 0; i < kRpcMethods; ++i) {
      requests[i] = make.Counters(catalogue::kRpcRequestsTotal, "result", catalogue::kResultValues,
                                  {{"method", catalogue::kMethodValues[i]}});
    }
    for (size_t i = 0; i < durations.size(); ++i) {
      durations[i] = &make.Histogram(catalogue::kRpcDurationSeconds, catalogue::kSecondsBuckets,
                                     {{"method", catalogue::kTimedValues[i]}});
    }
    for (size_t i = 0; i < stages.size(); ++i) {
      stages[i] = &make.Histogram(catalogue::kStageDurationSeconds, catalogue::kSecondsBuckets,
                                  {{"stage", catalogue::kStageValues[i]}});
    }
    for (const ErrorReason reason : AllReasons()) {
      rejections[reason] =
          &make.Counter(catalogue::kRejectionsTotal, {{"reason", std::string(ReasonName(reason))}});
    }
    std::vector<std::string> names = settings.cuda_devices;
    names.insert(names.begin(), "cpu");
    for (const std::string& name : names) {
      devices.emplace_back(make, Labels{{"device", name}});
      make.Gauge(catalogue::kQueueLimitJobs, {{"device", name}}).Set(settings.queue_limit);
    }
    make.Gauge(catalogue::kRunningScoreLimitBytes, {})
        .Set(static_cast<double>(settings.score_limit));
    make.Gauge(catalogue::kBuildInfo,
               {{"version", KVTRIAGE_VERSION}, {"revision", KVTRIAGE_REVISION}, {"cuda", "none"}})
        .Set(1);
    make.Gauge(catalogue::kConfigInfo, {{"backend", settings.backend},
                                        {"model", settings.model},
                                        {"policy", settings.default_policy},
                                        {"shadows", ""},
                                        {"sample_ratio", "0"}})
        .Set(1);
  }

  PolicySeries& PolicyOf(std::string_view name) {
    return !default_policy.empty() && name == default_policy ? policies.front() : policies.back();
  }

  const std::string default_policy;
  const bool per_layer;
  prometheus::Registry registry;
  ProcessMetrics process;
  SeriesMaker make{registry};
  std::vector<PolicySeries> policies;  // the default, if any, then "other"
  LayerMetrics layers{registry};

  std::array<Counter*, catalogue::kVerdictValues.size()> blend_tokens =
      make.Counters(catalogue::kBlendTokensTotal, "verdict", catalogue::kVerdictValues);
  Histogram& blend_covered =
      make.Histogram(catalogue::kBlendCoveredDivergenceRatio, catalogue::kShareBuckets, {});
  Histogram& blend_left =
      make.Histogram(catalogue::kBlendLeftDivergenceRatio, catalogue::kErrorBuckets, {});

  std::deque<DeviceSeries> devices;  // by DeviceIndex
  Gauge& unmaps_pending = make.Gauge(catalogue::kUnmapsPending, {});
  Gauge& score_bytes = make.Gauge(catalogue::kRunningScoreBytes, {});
  Counter& scores_dropped = make.Counter(catalogue::kRunningScoresDroppedTotal, {});

  std::array<std::array<Counter*, catalogue::kResultValues.size()>, kRpcMethods> requests{};
  std::array<Counter*, catalogue::kCodeValues.size()> codes =
      make.Counters(catalogue::kRpcCodesTotal, "code", catalogue::kCodeValues);
  std::array<Histogram*, catalogue::kTimedValues.size()> durations{};
  std::array<Histogram*, catalogue::kStageValues.size()> stages{};
  std::map<ErrorReason, Counter*> rejections;
  Gauge& sessions = make.Gauge(catalogue::kSessions, {});
  Counter& opened = make.Counter(catalogue::kSessionsOpenedTotal, {});
  std::array<Counter*, catalogue::kCauseValues.size()> ended =
      make.Counters(catalogue::kSessionsEndedTotal, "cause", catalogue::kCauseValues);
  Gauge& ready = make.Gauge(catalogue::kReady, {});
  Gauge& draining = make.Gauge(catalogue::kDraining, {});
};

// The other lanes' view: what has a label `device` goes to their own series.
class Metrics::DeviceObserver final : public EngineObserver {
 public:
  DeviceObserver(Metrics& all, DeviceSeries& device) : all_(all), device_(device) {}

  void OnStage(Stage stage, double seconds) override { all_.CountStage(stage, seconds, device_); }
  void OnDecision(const Decision& decision) override { all_.CountDecision(decision, device_); }
  void OnBlend(const BlendDecision& decision) override { all_.OnBlend(decision); }
  void OnBlendWrite(const BlendWrite& write) override { all_.CountBlendWrite(write, device_); }
  void OnQueue(uint32_t waiting) override { device_.queue.Set(waiting); }
  void OnScores(uint64_t bytes) override { all_.OnScores(bytes); }
  void OnScoresDropped() override { all_.OnScoresDropped(); }

 private:
  Metrics& all_;
  DeviceSeries& device_;
};

Metrics::Metrics(const MetricsSettings& settings) : series_(std::make_unique<Series>(settings)) {
  for (size_t i = 1; i < series_->devices.size(); ++i) {
    devices_.push_back(std::make_unique<DeviceObserver>(*this, series_->devices[i]));
  }
}
Metrics::~Metrics() = default;

EngineObserver* Metrics::OfDevice(DeviceIndex device) {
  if (device == kHostMemory) return this;
  return devices_[device - 1].get();
}

std::string Metrics::Page() const {
  std::vector<prometheus::MetricFamily> families = series_->registry.Collect();
  std::vector<prometheus::MetricFamily> process = series_->process.Collect();
  families.insert(families.end(), process.begin(), process.end());
  return prometheus::TextSerializer().Serialize(families);
}

size_t ResultClass(const RpcOutcome& outcome) {
  constexpr size_t kOk = 0, kClientError = 1, kServerError = 2, kShed = 3;
  switch (outcome.code) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kResourceExhausted:
      return kShed;
    case absl::StatusCode::kUnavailable:
      return outcome.reason == ErrorReason::kDraining ? kShed : kServerError;
    case absl::StatusCode::kDeadlineExceeded:
      return outcome.reason == ErrorReason::kDeadlineUnmeetable ? kShed : kServerError;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return kServerError;
    default:
      return kClientError;
  }
}

void Metrics::OnRpc(RpcMethod method, const RpcOutcome& outcome) {
  series_->requests[static_cast<size_t>(method)][ResultClass(outcome)]->Increment();
  const auto code = static_cast<size_t>(outcome.code);
  if (code < series_->codes.size()) series_->codes[code]->Increment();
  // A lease lasts for hours: its length is no duration of a call.
  if (method != RpcMethod::kAttach) {
    series_->durations[TimedIndex(method)]->Observe(outcome.seconds);
  }
  if (outcome.reason.has_value()) {
    const auto found = series_->rejections.find(*outcome.reason);
    if (found != series_->rejections.end()) found->second->Increment();
  }
}

void Metrics::OnCacheRegistered(uint32_t model_layers) {
  if (series_->per_layer) series_->layers.Create(model_layers);
}

void Metrics::SetReady(bool ready) { series_->ready.Set(ready ? 1 : 0); }
void Metrics::SetDraining() { series_->draining.Set(1); }

void Metrics::OnStage(Stage stage, double seconds) {
  CountStage(stage, seconds, series_->devices.front());
}

void Metrics::CountStage(Stage stage, double seconds, DeviceSeries& device) {
  const auto index = static_cast<size_t>(stage);
  series_->stages[index]->Observe(seconds);
  device.OnStage(catalogue::kStageValues[index], seconds);
}

void Metrics::OnDecision(const Decision& decision) {
  CountDecision(decision, series_->devices.front());
}

void Metrics::CountDecision(const Decision& decision, DeviceSeries& device) {
  PolicySeries& series = series_->PolicyOf(decision.policy);
  series.outcomes[static_cast<size_t>(decision.outcome)]->Increment();
  if (decision.outcome == DecisionOutcome::kFailed) return;  // it has no usable numbers
  series.considered.Increment(decision.considered);
  series.kept[0]->Increment(decision.kept_sink);
  series.kept[1]->Increment(decision.kept_middle);
  series.kept[2]->Increment(decision.kept_recent);
  if (decision.considered > 0) {
    const double kept = decision.kept_sink + decision.kept_middle + decision.kept_recent;
    ObserveFinite(series.kept_ratio, kept / decision.considered);
  }
  ObserveMass(series, decision.mass);
  ObserveQuality(series, decision.quality);
  series_->layers.Observe(decision.layers);
  device.OnDecision(decision);
}

void Metrics::OnBlend(const BlendDecision& decision) {
  series_->blend_tokens[0]->Increment(decision.reused);
  series_->blend_tokens[1]->Increment(decision.recompute);
  ObserveFinite(series_->blend_covered, decision.covered_divergence);
  // Negative: the engine did not have it at hand.
  if (decision.left_divergence >= 0) ObserveFinite(series_->blend_left, decision.left_divergence);
}

void Metrics::OnBlendWrite(const BlendWrite& write) {
  CountBlendWrite(write, series_->devices.front());
}

void Metrics::CountBlendWrite(const BlendWrite& write, DeviceSeries& device) {
  series_->blend_tokens[2]->Increment(static_cast<double>(write.fused_rows));
  device.moved.Increment(static_cast<double>(write.bytes));
}

void Metrics::OnQueue(uint32_t waiting) { series_->devices.front().queue.Set(waiting); }

void Metrics::OnScores(uint64_t bytes) { series_->score_bytes.Set(static_cast<double>(bytes)); }

void Metrics::OnScoresDropped() { series_->scores_dropped.Increment(); }

void Metrics::OnMapped(DeviceIndex memory, uint64_t bytes) {
  series_->devices[memory].regions.Increment();
  series_->devices[memory].mapped.Increment(static_cast<double>(bytes));
}

void Metrics::OnRetiring() { series_->unmaps_pending.Increment(); }

void Metrics::OnUnmapped(DeviceIndex memory, uint64_t bytes) {
  series_->devices[memory].regions.Decrement();
  series_->devices[memory].mapped.Decrement(static_cast<double>(bytes));
  series_->unmaps_pending.Decrement();
}

void Metrics::OnAttached(const Session& /*session*/) {
  series_->sessions.Increment();
  series_->opened.Increment();
}

void Metrics::OnBound(const Session& /*session*/, const PeerProcess& /*peer*/) {}

void Metrics::OnEnded(const Session& /*session*/, EndCause cause) {
  series_->sessions.Decrement();
  series_->ended[static_cast<size_t>(cause)]->Increment();
}

}  // namespace kvtriage
