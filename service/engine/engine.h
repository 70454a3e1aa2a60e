// Everything between a checked request and its answer: idempotency, admission, planning, the lane.
// Thread-safe; no call blocks. Answers come on a thread of the engine (or at once on the caller's).
#ifndef KVTRIAGE_SERVICE_ENGINE_ENGINE_H_
#define KVTRIAGE_SERVICE_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtriage/kernels/backend.h"
#include "service/engine/lane_device.h"
#include "service/engine/packed_kept.h"
#include "service/engine/triage.h"
#include "service/policy/blend_spec.h"
#include "service/policy/body_digest.h"
#include "service/policy/observe_spec.h"
#include "service/policy/register_spec.h"
#include "service/session/session.h"

namespace kvtriage {

class EngineObserver;
class Lane;

struct JobTiming {  // microseconds
  uint32_t queue = 0, score = 0, select = 0, move = 0, measure = 0, total = 0;
};

struct SequenceOutcome {
  uint64_t sequence_id = 0;
  uint32_t kv_revision = 0;
  uint64_t logical_len = 0;
  uint64_t physical_len = 0;  // of the call
  uint64_t kept = 0;          // longest list
  uint64_t next_position = 0;
  // Leading entries of the table that are still in use: of the destination after a copy, of all
  // rows when nothing was moved (select only, noop).
  uint32_t blocks_used = 0;
  // Entries of the table (of the destination for a copy) whose bytes changed, LSB first. Bits lie
  // below blocks_used.
  std::vector<uint8_t> rewritten_bitmap;
  TriageResult triage;               // without its lists where `packed` is set
  std::optional<PackedKept> packed;  // what the answer's format says of the lists
};

struct CompressAnswer {
  PolicySpec policy;                    // the expanded form that ran
  uint32_t layers = 0;                  // of the call
  std::vector<uint32_t> layer_indexes;  // into the cache, per layer of the call
  std::vector<uint32_t> heads;          // KV heads per layer of the call
  KeptFormat format = KeptFormat::kIndices;
  std::vector<SequenceOutcome> sequences;
};

struct RecomputeAnswer {
  std::vector<int32_t> rows;    // must + hkvd, ascending
  std::vector<int32_t> limits;  // per row
  std::vector<bool> is_must;    // per row
  uint32_t must = 0, hkvd = 0, base = 0, nonfinite_rows = 0;
  double gap = 0, divergence_share = 0;
  // Largest relative divergence left alone; metrics only. Negative: not known, because another
  // metric was asked for and a second pass over the rows would cost as much as the first.
  double left_divergence = -1;
};

struct RerotateAnswer {
  uint32_t kv_revision = 0;
  uint64_t rows_rotated = 0;  // whose position changed
};

struct FuseAnswer {
  uint32_t kv_revision = 0;
  uint64_t rows_written = 0;
};

struct ObserveAnswer {
  struct Step {
    uint64_t sequence_id = 0;
    std::optional<uint32_t> evicted;  // place among `evicted.sequences`
    uint32_t draft_rows = 0;          // outstanding
    bool started = false;             // no running scores were known
  };
  PolicySpec policy;  // the expanded form that ran
  std::vector<Step> steps;
  CompressAnswer evicted;  // of the sequences that were cut back; empty when none was
};

struct RewindAnswer {
  uint32_t draft_rows = 0;    // outstanding
  uint64_t physical_len = 0;  // rows that we know
};

struct Answer {
  uint64_t job_id = 0;
  JobTiming timing;
  std::variant<CompressAnswer, ObserveAnswer, RewindAnswer, RecomputeAnswer, RerotateAnswer,
               FuseAnswer, RegisteredIds>
      body;
  uint64_t bytes() const;  // about what storing it costs
};

struct CallResult {
  absl::Status status;                   // with ErrorInfo when an error
  std::shared_ptr<const Answer> answer;  // set when ok
  bool replayed = false;
};

// One RPC as the engine sees it. `done` is called exactly once, on any thread, and must not block.
struct Call {
  std::shared_ptr<Session> session;
  BodyDigest body;  // of the request without its header
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<std::atomic<bool>> cancelled;  // the client went away; may be null
  std::function<void(CallResult)> done;
};

// One CompressLayers as the engine sees it. `opened` comes first, then `layer_done` for the layers
// in the order in which they came, on any thread; they must not block. `ended` comes exactly once,
// whatever happens, and nothing counts that comes after it: the whole answer, or why there is none.
struct LayersCall {
  std::shared_ptr<Session> session;
  absl::Time deadline = absl::InfiniteFuture();
  std::function<void(const CallResult&)> opened;  // OK: its answer has the policy and no sequences
  std::function<void(uint32_t layer, const CallResult&)> layer_done;  // OK
  std::function<void(CallResult)> ended;
};

struct LayerCall {
  RequestHeader header;
  BodyDigest body;     // of the stream's first message and of the layer
  uint32_t layer = 0;  // index into the cache
};

struct LayerStream;  // one open CompressLayers

struct EngineLimits {
  uint32_t jobs_per_session = 4;
  uint32_t lane_queue = 256;
  uint64_t lane_stuck_ms = 30000;
  uint32_t sequences_per_session = 4096;
  uint64_t score_bytes = 512u << 20;  // running scores of all sessions
  uint32_t results_per_session = 64;
  uint64_t results_ttl_ms = 60000;
  uint64_t results_session_bytes = 16u << 20;
  uint64_t results_bytes = 256u << 20;
  uint32_t remembered_keys = 4096;
  uint64_t max_response_bytes = 4u << 20;
  uint32_t groups = 64;                        // that wait for ranks
  uint64_t group_bytes = uint64_t{512} << 20;  // of scores that wait
};

class Engine {
 public:
  // A lane for host memory with `backend`, and one for each CUDA device, whose numbers are those of
  // its memory (service/memory/mapping.h) from 1 on. `observer` (metrics; of the host's lane, and
  // of what belongs to no lane) may be null and outlives the engine.
  Engine(const EngineLimits& limits, std::unique_ptr<Backend> backend, EngineObserver* observer,
         std::vector<DeviceLane> devices = {});
  ~Engine();  // refuses what is queued, lets running jobs end, joins the lanes

  // Waits until all devices are made; why one could not be, if so. Once, before the first call.
  absl::Status WaitReady();

  // The specs are checked by service/validate; what depends on the session's memory, its sequences
  // or the load is checked here. With header.resolve nothing runs and the rest of the spec is
  // ignored. Beside what the planner refuses (service/engine/planner.h) a call may end with
  // SESSION_ENDED, DRAINING, DEVICE_SICK, SESSION_BUSY, QUEUE_FULL, DEADLINE_UNMEETABLE,
  // LEDGER_SLOT_BUSY, SEQUENCE_STALE, SEQUENCE_RELEASED, KEY_REUSED, KEY_DEAD, RESULT_EXPIRED,
  // MOVE_FAILED, or for running scores DRAFT_PENDING or QUOTA_STATE.
  // A call with a group waits, off the lane, until all its ranks' calls are scored; then all of
  // them decide and write, or none: GROUP_MISMATCH, or QUOTA_STATE where too many wait. It is over
  // kGroupMargin before the earliest deadline (group_table.h).
  void Compress(Call call, CompressSpec spec);
  // service/engine/observe.h and rewind.h say what they do and refuse.
  void Observe(Call call, ObserveSpec spec);
  void Rewind(Call call, RewindSpec spec);
  void SelectRecompute(Call call, SelectRecomputeSpec spec);
  void Rerotate(Call call, RerotateSpec spec);
  void Fuse(Call call, FuseSpec spec);

  // A Compress whose layers come one by one. The stream counts as one job of its session until it
  // ends, however many layers wait, and keeps its sequences to itself: other jobs that name them
  // wait. A layer is a job with a key of its own; it is never refused for load, nor in a drain. The
  // stream ends with the first error of any layer, with SEE_LEDGER once a row was moved.
  // Beside what Compress may end with: RESULT_TOO_LARGE before any layer has come.
  std::shared_ptr<LayerStream> OpenLayers(LayersCall call, CompressSpec spec);
  // After `opened`. FIELD_INVALID (field "layer.layer") ends the stream: a layer that the stream
  // did not announce, or twice.
  void AddLayer(const std::shared_ptr<LayerStream>& stream, LayerCall layer);
  // No more layers come: `ended` follows the last one. FIELD_MISSING (field "layer", index = the
  // first that did not come).
  void CloseLayers(const std::shared_ptr<LayerStream>& stream);
  // Layers that have not begun are dropped; `ended` says `why`.
  void DropLayers(const std::shared_ptr<LayerStream>& stream, const absl::Status& why);

  void Register(Call call, RegisterSpec spec);

  // A call's `cancelled` was set: one that waits for other ranks ends its group.
  void NoteCancelled();
  // Calls that wait for other ranks.
  uint32_t waiting_ranks() const;

  struct Released {
    uint32_t released = 0, already_gone = 0;
  };
  // `done` when no job touches the rows of these sequences any more. Queued jobs of theirs end
  // ABORTED, and so do those that come while the release waits.
  void ReleaseSequences(const std::shared_ptr<Session>& session, std::vector<uint64_t> sequence_ids,
                        std::function<void(Released)> done);

  // For SessionTable::SetEngineEnd.
  void EndSession(const std::shared_ptr<Session>& session, std::function<void()> finished);

  // New jobs get DRAINING; admitted ones run to their end.
  void StopAdmitting();
  uint32_t jobs_left() const;
  bool WaitIdle(uint64_t timeout_ms);

  // How long a running job has been on its lane, the longest of them in ms; 0 when all are idle.
  // For the watchdog.
  uint64_t RunningMs() const;
  // New jobs get DEVICE_SICK from now on.
  void MarkSick();
  // The same, and all calls that wait end with DEVICE_LOST: the process is about to end.
  void GiveUp();

 private:
  struct State;
  std::shared_ptr<State> state_;              // shared with callbacks that outlive their call
  std::vector<std::unique_ptr<Lane>> lanes_;  // by device
  std::thread keeper_;                        // ends groups whose time is up
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ENGINE_H_
