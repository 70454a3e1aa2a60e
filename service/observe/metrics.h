// The numbers of /metrics. All series exist from the start at 0, save those by layer, which the
// first registered cache brings. Thread-safe; one call per RPC or decision, never per row; no lock
// of ours is held while a series is changed.
#ifndef KVTRIAGE_SERVICE_OBSERVE_METRICS_H_
#define KVTRIAGE_SERVICE_OBSERVE_METRICS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "kernels/core/error.h"
#include "service/engine/engine_observer.h"
#include "service/observe/rpc_method.h"
#include "service/session/session_table.h"

namespace kvtriage {

struct MetricsSettings {
  std::string default_policy;  // empty: every policy counts as "other"
  std::string backend = "auto";
  std::string model = "default";
  bool per_layer = true;
  uint32_t queue_limit = 0;
  uint64_t score_limit = 0;  // bytes
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

  void OnMapped(uint64_t bytes) override;
  void OnRetiring() override;
  void OnUnmapped(uint64_t bytes) override;

  void OnAttached(const Session& session) override;
  void OnBound(const Session& session, const PeerProcess& peer) override;
  void OnEnded(const Session& session, EndCause cause) override;

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

// "ok", "client_error", "server_error" or "shed" as an index into catalogue::kResultValues.
size_t ResultClass(const RpcOutcome& outcome);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_METRICS_H_
