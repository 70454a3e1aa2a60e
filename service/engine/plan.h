// A Compress with every name resolved and every range checked. Made once per job on the lane's
// thread and not changed afterwards; points into the job's CompressSpec, which outlives it.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "service/engine/pin_set.h"
#include "service/engine/triage.h"
#include "service/memory/session_memory.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

struct PlanLayer {
  uint32_t index = 0;        // into the cache
  uint32_t layer_index = 0;  // of the model
  uint32_t q_heads = 0;
  LayerKind kind = LayerKind::kFull;
  bool movable = true;          // rows may change their place
  uint32_t sliding_window = 0;  // > 0: older rows are not seen any more
  KvView k, v;
  bool v_in_k = false;  // v moves with k: elements of its rows from v_first_elem on
  uint32_t v_first_elem = 0;
  std::vector<KvView> companions;  // scales of fp8 rows among them
  const Rope* rope = nullptr;      // of the registered cache; null: no rotary part

  uint32_t kv_heads() const { return k.layout.heads; }
  // Bytes of one row of one head in all views together.
  uint64_t row_bytes() const;
};

// The layers of a call in one cache.
struct PlanCache {
  std::shared_ptr<const RegisteredCache> registered;
  std::vector<PlanLayer> layers;

  // Table entries that hold `slots` slots, in the layer that needs most of them.
  uint64_t EntriesFor(uint64_t slots) const;
};

struct PlanSequence {
  const SequenceSpec* spec = nullptr;
  uint64_t entries = 0;  // of the table, in use
  TriageSequence triage;
};

struct CompressPlan {
  PinSet pins;
  PlanCache cache;
  PlanCache destination;  // layers are empty unless the call copies
  std::vector<PlanSequence> sequences;
  std::optional<AngleMode> renumber;  // kept row j is turned to position j
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_H_
