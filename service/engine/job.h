// One admitted call on its way to the lane.
#ifndef KVTRIAGE_SERVICE_ENGINE_JOB_H_
#define KVTRIAGE_SERVICE_ENGINE_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "service/engine/call_kind.h"
#include "service/engine/engine.h"
#include "service/engine/group_part.h"
#include "service/engine/idempotency.h"
#include "service/engine/sequence_table.h"
#include "service/memory/mapping.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

// A job of a CompressLayers stream.
enum class LayerStep : uint8_t { kOpen, kLayer, kClose };

struct Job {
  uint64_t id = 0;
  Call call;
  CallKey key;
  CallKind kind = CallKind::kCompress;
  std::variant<CompressSpec, ObserveSpec, RewindSpec, SelectRecomputeSpec, RerotateSpec, FuseSpec>
      spec;
  std::shared_ptr<SequenceTable> sequences;  // of the session
  std::vector<uint64_t> sequence_ids;        // ascending
  std::optional<uint32_t> ledger_slot;       // set when the call writes in place
  uint64_t bytes = 0;                        // about what the lane will read
  DeviceIndex device = kHostMemory;          // whose lane runs it
  // Set for a step of a stream, which has `call` without `done` and no `spec`.
  std::shared_ptr<LayerStream> stream;
  LayerStep step = LayerStep::kOpen;
  uint32_t layer = 0;                    // kLayer: index into the cache
  std::shared_ptr<const Answer> stored;  // kLayer: the answer of a layer that is done already
  absl::Time admitted;
  // A rank's call behind its first half: what it has answered so far, and what it has left to do,
  // which points into this job.
  std::shared_ptr<Answer> answer;
  std::unique_ptr<GroupPart> part;
  // Set alone: the calls of a group that is whole, in rank order.
  std::vector<std::unique_ptr<Job>> ranks;

  uint64_t session_id() const { return key.session_id; }
  bool in_stream() const { return stream != nullptr && step != LayerStep::kOpen; }
  bool closes_stream() const { return stream != nullptr && step == LayerStep::kClose; }
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_JOB_H_
