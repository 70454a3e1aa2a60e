#include "service/observe/layer_metrics.h"

#include <algorithm>
#include <string>

#include "service/observe/metric_series.h"

namespace kvtriage {
namespace {
constexpr uint32_t kMaxGroups = 64;
}  // namespace

void LayerMetrics::Create(uint32_t model_layers) {
  MutexLock lock(&mutex_);
  if (created_ || model_layers == 0) return;
  created_ = true;
  group_layers_ = model_layers / kMaxGroups + (model_layers % kMaxGroups != 0 ? 1 : 0);
  SeriesMaker make(registry_);
  for (uint64_t first = 0; first < model_layers; first += group_layers_) {
    const prometheus::Labels labels = {{"layer", std::to_string(first)}};
    groups_.push_back({&make.Summary(catalogue::kLayerKeptRatio, labels),
                       &make.Summary(catalogue::kLayerMassRetainedRatio, labels)});
  }
  ready_.store(true, std::memory_order_release);
}

void LayerMetrics::Observe(std::span<const Decision::Layer> layers) const {
  if (!ready_.load(std::memory_order_acquire)) return;
  for (const Decision::Layer& layer : layers) {
    const size_t group = std::min<size_t>(layer.index / group_layers_, groups_.size() - 1);
    groups_[group].kept->Observe(layer.kept_share);
    if (layer.mass >= 0) groups_[group].mass->Observe(layer.mass);  // false for NaN, too
  }
}

}  // namespace kvtriage
