// The two summaries by layer group. Their label values are known only when a first cache has been
// registered, so they are made then, once.
#ifndef KVTRIAGE_SERVICE_OBSERVE_LAYER_METRICS_H_
#define KVTRIAGE_SERVICE_OBSERVE_LAYER_METRICS_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/core/mutex.h"
#include "prometheus/registry.h"
#include "prometheus/summary.h"
#include "service/engine/engine_observer.h"

namespace kvtriage {

// Thread-safe.
class LayerMetrics {
 public:
  explicit LayerMetrics(prometheus::Registry& registry) : registry_(registry) {}

  // Groups of ceil(model_layers / 64) layers. Does nothing after the first call with layers.
  void Create(uint32_t model_layers);

  // Nothing before Create. Layers beyond the first model's count with its last group.
  void Observe(std::span<const Decision::Layer> layers) const;

 private:
  struct Group {
    prometheus::Summary* kept;
    prometheus::Summary* mass;
  };
  prometheus::Registry& registry_;
  Mutex mutex_;
  bool created_ ABSL_GUARDED_BY(mutex_) = false;
  // Written before `ready_` is set, never again.
  std::vector<Group> groups_;
  uint32_t group_layers_ = 1;
  std::atomic<bool> ready_{false};
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_LAYER_METRICS_H_
