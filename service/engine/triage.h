// The heart of a Compress without any plumbing: from resolved views to kept sets and their quality.
// Reads the cache, never writes it. Used by the lane; tests call it directly.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/kernels/backend.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

struct TriageLayer {
  LayerRows rows;
  AttentionInput input;
  uint32_t layer_index = 0;    // of the model, for the random scorer and pyramids
  const Rope* rope = nullptr;  // null: nothing turns
};

struct TriageSequence {
  uint32_t rows = 0;           // N of every layer
  uint32_t model_layers = 1;   // above every layer_index; a pyramid spans them
  uint64_t next_position = 0;  // of the next token
  std::vector<TriageLayer> layers;
  const ExplicitRows* protect = nullptr;  // null = none
};

struct TriageLayerOutcome {
  uint32_t first_list = 0;  // of `TriageResult::kept`
  uint32_t list_step = 0;   // from one KV head's list to the next; 0 when heads share it
  uint32_t kept = 0;        // longest list
  uint32_t trimmed = 0;
  uint32_t nonfinite_tokens = 0;
  uint32_t skipped_rows = 0;
  uint32_t stage1 = 0, stage2 = 0;  // kCritical: rows that its two stages chose, over the KV heads
  bool lse_suspect = false;
};

struct LayerQuality {
  bool has_mass = false, has_error = false, has_recall = false;
  // Per KV head. head_mass_low is empty when the mass comes from column sums: they hide the single
  // row.
  std::vector<double> head_mass_mean, head_mass_low, head_error, head_error_high, head_recall;
  double mass_mean = 0, mass_p5 = 0, error = 0, error_p95 = 0, recall_mean = 0;
};

struct TriageTimes {  // microseconds
  uint32_t score = 0, select = 0, measure = 0;
};

struct TriageResult {
  bool noop = false;  // budget >= N: everything is kept
  // One list per (layer, head), per layer, or one: as the policy's granularity says. Ascending.
  std::vector<std::vector<int32_t>> kept;
  std::vector<uint32_t> recent;  // per list: its recent window, trimmed by the budget or not
  std::vector<TriageLayerOutcome> layers;
  std::vector<LayerQuality> quality;  // per layer, when measured
  // Retained mass of the window's rows per (layer, KV head), when the scorer formed attention; else
  // empty.
  std::vector<double> window_mass;
  TriageTimes times;

  // The list that holds for (layer, head). Layers may differ in their number of KV heads.
  uint32_t NumberOf(uint32_t layer, uint32_t head) const {
    return layers[layer].first_list + head * layers[layer].list_step;
  }
  const std::vector<int32_t>& ListOf(uint32_t layer, uint32_t head) const {
    return kept[NumberOf(layer, head)];
  }
};

// Scores, selects and (if asked) measures one sequence. A policy with explicit rows finer than its
// granularity protects their union. Quality covers all usable query rows of the inputs; a layer
// where a KV head has none, or whose inputs cannot tell, leaves its `has_` flags false. Explicit
// counts fit the layers and heads. Errors: BUDGET_TOO_SMALL and POLICY_INVALID (field "protect": a
// pyramid over protected sets of unequal size), NO_USABLE_ROW (field "inputs"), whatever `stop`
// gives. N = 0 is a noop that reads nothing.
absl::Status TriageOne(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                       const MeasureSpec& measure, const StopCheck& stop, TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_H_
