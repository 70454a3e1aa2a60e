// One open CompressLayers. Its steps (open, layers, close) are jobs of the lane, one at a time: at
// most one of them is queued or running.
#ifndef KVTRIAGE_SERVICE_ENGINE_LAYER_STREAM_H_
#define KVTRIAGE_SERVICE_ENGINE_LAYER_STREAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "service/engine/engine.h"
#include "service/engine/plan.h"
#include "service/engine/running_scores.h"
#include "service/engine/sequence_table.h"

namespace kvtriage {

// What the steps have done. Belongs to the step that is queued or running; between steps the
// engine's lock guards it.
struct LayerProgress {
  // Of all layers, made by the first step. Without its pins: numbers only, no memory is read by it.
  CompressPlan plan;
  uint32_t counts_per_unit = 0;  // of the ledger
  bool slot_open = false;
  bool moved = false;      // a row was moved in place
  std::vector<bool> noop;  // per sequence: no layer of it changes
  // By place among the plan's layers: whose units of the ledger have a state of their own, and
  // whose answers are known.
  std::set<uint32_t> touched;
  std::map<uint32_t, std::shared_ptr<const Answer>> done;
  std::vector<uint64_t> bytes_moved;  // per sequence
  // keep_state: memory for the scores that the stream leaves, one lease per sequence, and by place
  // the sums of every sequence in that layer.
  std::vector<std::shared_ptr<ScoreLease>> leases;
  std::map<uint32_t, std::vector<LayerSums>> sums;
};

struct LayerStream {
  LayersCall call;
  CompressSpec spec;                         // of all layers; the header is empty
  uint64_t bytes = 0;                        // about what all layers together will read
  DeviceIndex device = kHostMemory;          // whose lane runs its steps
  std::shared_ptr<SequenceTable> sequences;  // of the session
  std::vector<uint64_t> sequence_ids;        // ascending
  std::shared_ptr<std::atomic<bool>> dropped = std::make_shared<std::atomic<bool>>(false);

  // Under the engine's lock.
  uint64_t id = 0;  // of the first job
  std::deque<LayerCall> waiting;
  std::set<uint32_t> came;  // layers
  bool busy = false;        // a step is queued or running
  bool opened = false;      // the first step went well: the sequences are held
  bool half_closed = false;
  absl::Status broken;  // unless OK, how the stream ends
  bool over = false;

  LayerProgress progress;

  // Place of a layer among those that the stream announced; their number when it is none of them.
  size_t PlaceOf(uint32_t layer) const {
    const std::vector<PlanLayer>& layers = progress.plan.cache.layers;
    size_t place = 0;
    while (place < layers.size() && layers[place].index != layer) ++place;
    return place;
  }
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LAYER_STREAM_H_
