// Makes series from catalogue entries. For service/observe only.
#ifndef KVTRIAGE_SERVICE_OBSERVE_METRIC_SERIES_H_
#define KVTRIAGE_SERVICE_OBSERVE_METRIC_SERIES_H_

#include <array>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/summary.h"
#include "service/observe/catalogue.h"

namespace kvtriage {

// References stay valid as long as the registry.
class SeriesMaker {
 public:
  explicit SeriesMaker(prometheus::Registry& registry) : registry_(registry) {}

  prometheus::Counter& Counter(const catalogue::Metric& metric, const prometheus::Labels& labels) {
    return prometheus::BuildCounter()
        .Name(metric.name)
        .Help(metric.help)
        .Register(registry_)
        .Add(labels);
  }
  prometheus::Gauge& Gauge(const catalogue::Metric& metric, const prometheus::Labels& labels) {
    return prometheus::BuildGauge()
        .Name(metric.name)
        .Help(metric.help)
        .Register(registry_)
        .Add(labels);
  }
  template <size_t N>
  prometheus::Histogram& Histogram(const catalogue::Metric& metric,
                                   const std::array<double, N>& bounds,
                                   const prometheus::Labels& labels) {
    return prometheus::BuildHistogram()
        .Name(metric.name)
        .Help(metric.help)
        .Register(registry_)
        .Add(labels, std::vector<double>(bounds.begin(), bounds.end()));
  }
  prometheus::Summary& Summary(const catalogue::Metric& metric, const prometheus::Labels& labels) {
    return prometheus::BuildSummary()
        .Name(metric.name)
        .Help(metric.help)
        .Register(registry_)
        .Add(labels, prometheus::Summary::Quantiles{});
  }

  // One counter per value of a closed label.
  template <size_t N>
  std::array<prometheus::Counter*, N> Counters(const catalogue::Metric& metric, const char* label,
                                               const std::array<const char*, N>& values,
                                               prometheus::Labels labels = {}) {
    std::array<prometheus::Counter*, N> counters{};
    for (size_t i = 0; i < N; ++i) {
      labels[label] = values[i];
      counters[i] = &Counter(metric, labels);
    }
    return counters;
  }

  prometheus::Registry& registry() { return registry_; }

 private:
  prometheus::Registry& registry_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_METRIC_SERIES_H_
