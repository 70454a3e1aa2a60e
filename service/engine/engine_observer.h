// What the engine tells whoever counts. One call per decision or refusal, never per row;
// implementations are thread-safe and quick (service/observe turns them into metrics).
#ifndef KVTRIAGE_SERVICE_ENGINE_ENGINE_OBSERVER_H_
#define KVTRIAGE_SERVICE_ENGINE_ENGINE_OBSERVER_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "service/engine/engine.h"

namespace kvtriage {

enum class Stage : uint8_t { kValidate, kQueue, kPlan, kScore, kSelect, kMeasure, kMove, kReply };
enum class DecisionOutcome : uint8_t { kApplied, kAdvised, kUnchanged, kFailed };

// One decision: one sequence in one call, all its layers together.
struct Decision {
  std::string_view policy;  // as named; empty when hand-made
  DecisionOutcome outcome = DecisionOutcome::kAdvised;
  double considered = 0;                                   // rows, mean over layers and KV heads
  double kept_sink = 0, kept_middle = 0, kept_recent = 0;  // the same, by where they stood
  uint64_t evicted_bytes = 0, reclaimable_bytes = 0, moved_bytes = 0;
  std::span<const double> mass;  // per (layer, KV head); empty when attention was not formed
  // Per layer of the call: model layer number, kept share, mean retained mass (negative: not
  // known).
  struct Layer {
    uint32_t index = 0;
    double kept_share = 0, mass = -1;
  };
  std::span<const Layer> layers;
  std::span<const LayerQuality> quality;  // when the request measured
};

struct BlendDecision {
  uint32_t reused = 0, recompute = 0;
  double covered_divergence = 0;  // share of the total
  double left_divergence = -1;    // largest relative divergence left alone; negative: not known
};

// Rows that a Rerotate or Fuse has written.
struct BlendWrite {
  uint64_t fused_rows = 0;
  uint64_t bytes = 0;
};

class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void OnStage(Stage stage, double seconds) = 0;
  virtual void OnDecision(const Decision& decision) = 0;
  virtual void OnBlend(const BlendDecision& decision) = 0;
  virtual void OnBlendWrite(const BlendWrite& write) = 0;
  virtual void OnQueue(uint32_t waiting) = 0;  // jobs waiting for the lane
  virtual void OnScores(uint64_t bytes) = 0;   // of running scores, all sessions
  // Running scores of a sequence were given up: they did not fit what became of its rows.
  virtual void OnScoresDropped() = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ENGINE_OBSERVER_H_
