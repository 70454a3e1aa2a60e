// The numbers of /metrics. All series exist from the start at 0, save those by layer, which the
// first registered cache brings. Thread-safe; one call per RPC or decision, never per row; no lock
// of ours is held while a series is changed.
#ifndef KVTRIAGE_SERVICE_OBSERVE_METRICS_H_
#define KVTRIAGE_SERVICE_OBSERVE_METRICS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/error.h"
#include "service/engine/engine_observer.h"
#include "service/observe/rpc_method.h"
#include "service/session/session_table.h"

namespace kvtriage {

struct DeviceSeries;  // of one value of the label `device`

struct MetricsSettings {
  std::string default_policy;  // empty: every policy counts as "other"
  std::string backend = "auto";
  std::string model = "default";
  bool per_layer = true;
  uint32_t queue_limit = 0;
  uint64_t score_limit = 0;  // bytes
  // "cuda:0": the label of every CUDA device that is served, in the order of DeviceIndex.
  std::vector<std::string> cuda_devices;
};

struct RpcOutcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::optional<ErrorReason> reason;  // of an error of ours
  double seconds = 0;
};

class Metrics final : public EngineObserver, public MappingObserver, public SessionObserver {
 public:
  explicit Metrics(const MetricsSettings& settings);
  ~Metrics() override;

  // For the lane of a device: the same metrics with its label. Lives as long as this. Of the host's
  // memory (kHostMemory) it is this.
  EngineObserver* OfDevice(DeviceIndex device);

  // The page in the text exposition format, version 0.0.4.
  std::string Page() const;

  void OnRpc(RpcMethod method, const RpcOutcome& outcome);
  // Creates the series by layer when it is the first.
  void OnCacheRegistered(uint32_t model_layers);
  void SetReady(bool ready);
  void SetDraining();

  void OnStage(Stage stage, double seconds) override;
  void OnDecision(const Decision& decision) override;
  void OnBlend(const BlendDecision& decision) override;
  void OnBlendWrite(const BlendWrite& write) override;
  void OnQueue(uint32_t waiting) override;
  void OnScores(uint64_t bytes) override;
  void OnScoresDropped() override;

  void OnMapped(DeviceIndex memory, uint64_t bytes) override;
  void OnRetiring() override;
  void OnUnmapped(DeviceIndex memory, uint64_t bytes) override;

  void OnAttached(const Session& session) override;
  void OnBound(const Session& session, const PeerProcess& peer) override;
  void OnEnded(const Session& session, EndCause cause) override;

 private:
  struct Series;
  class DeviceObserver;
  void CountStage(Stage stage, double seconds, DeviceSeries& device);
  void CountDecision(const Decision& decision, DeviceSeries& device);
  void CountBlendWrite(const BlendWrite& write, DeviceSeries& device);

  std::unique_ptr<Series> series_;
  std::vector<std::unique_ptr<DeviceObserver>> devices_;  // CUDA's
};

// "ok", "client_error", "server_error" or "shed" as an index into catalogue::kResultValues.
size_t ResultClass(const RpcOutcome& outcome);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_METRICS_H_
