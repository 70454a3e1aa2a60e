// What goes into and comes out of Session::Compress.
#ifndef KVTRIAGE_CLIENT_COMPRESS_H_
#define KVTRIAGE_CLIENT_COMPRESS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/cache_description.h"
#include "kvtriage/error_details.h"
#include "kvtriage/group.h"
#include "kvtriage/policy.h"

namespace kvtriage::client {

// ---- the request ---------------------------------------------------------------------

enum class Sharing { kUnspecified = 0, kAllPrivate = 1, kPrefix = 2, kBitmap = 3, kUnknown = 4 };

// Ascending row numbers without repeats: one list (kPerSequence), one per layer, or layer-major one
// per (layer, KV head).
struct RowLists {
  Granularity granularity = Granularity::kPerSequence;
  std::vector<std::vector<int32_t>> lists;
};

// Positions of rows in order: the first one's, or one per row (three planes back to back where rows
// turn with M-RoPE).
using Positions = std::variant<uint64_t, std::vector<int32_t>>;

struct Sequence {
  uint64_t sequence_id = 0;   // the caller's own, not 0
  uint32_t generation = 0;    // +1 when the rows start anew
  uint32_t kv_revision = 0;   // the last value an answer gave; 0 at first
  uint64_t logical_len = 0;   // tokens seen
  uint64_t physical_len = 0;  // rows in the cache now
  uint32_t first_slot = 0;    // rows to skip in the first block (left padding)
  std::vector<int32_t> table;
  Sharing sharing = Sharing::kUnspecified;  // required by every act that writes
  uint32_t shared_blocks = 0;               // kPrefix
  std::vector<uint8_t> shared_bitmap;       // kBitmap: bit i is table entry i, lowest bit first
  std::vector<int32_t> destination;         // copy only: blocks to write
  uint32_t rows_begin = 0, rows_count = 0;  // this sequence's rows on the row axis of the inputs
  std::vector<int32_t> row_limits;          // rows each of them may see; empty: up to its own
  std::optional<RowLists> protect;          // kept whatever their score
  std::optional<Positions> positions;       // of the cached rows; needed to rotate anything
};

enum class QueryStage { kUnspecified = 0, kBeforeRope = 1, kAfterRope = 2 };
enum class LseBase { kUnspecified = 0, kE = 1, k2 = 2 };
enum class HeadAxis { kUnspecified = 0, kQuery = 1, kKv = 2, kSummed = 3 };

struct KeysOnly {};
struct QueryWindow {  // Q alone: two passes
  TensorSpec q;
  QueryStage stage = QueryStage::kUnspecified;
};
struct QueryOutput {  // Q, O and LSE: one pass
  TensorSpec q;
  QueryStage stage = QueryStage::kUnspecified;
  TensorSpec o, lse;
  LseBase lse_base = LseBase::kUnspecified;
};
struct ReadyAttention {  // elem axis of a and z: cached row
  TensorSpec a;
  std::optional<TensorSpec> z, o;
};
struct ColumnSums {  // one row per sequence; elem axis: cached row
  TensorSpec sums;
  HeadAxis heads = HeadAxis::kUnspecified;
};

struct ScoreInputs {
  std::variant<KeysOnly, QueryWindow, QueryOutput, ReadyAttention, ColumnSums> source;
  double softmax_scale = 0;  // required with Q and by expected-attention
  double logit_softcap = 0;  // c of a model that caps logits as c * tanh(z / c); 0: off
  // One number per layer of the call and query head: [layers, 1, heads, 1]. Learned sinks join the
  // softmax of Q alone; slopes are required with Q on ALiBi layers.
  std::optional<TensorSpec> sink_logits, alibi_slopes;
  // W_O: layer, row = hidden, head = query head, elem = dv. Lent once, named by every call whose
  // policy may read it (criticalkv).
  std::optional<TensorSpec> output_projection;
  // Mean (layer, one row, query head, dk) and covariance (layer, dk rows, query head, dk) of the
  // queries before RoPE, together or not at all: expected-attention.
  std::optional<TensorSpec> query_mean, query_covariance;
};

struct SelectOnly {};
struct CopyTo {
  Cache cache;  // may be the source cache
};
struct InPlace {};  // the library picks the ledger slot
using Act = std::variant<SelectOnly, CopyTo, InPlace>;

// Which lengths the engine can carry.
enum class LengthRule { kAny = 1, kPerLayer = 2, kOne = 3 };

// How the answer says which rows were kept. An answer over Limits.max_response_bytes is refused
// before anything is written: result_too_large. Long sequences need a smaller format.
enum class KeptFormat {
  kIndices = 1,  // 4 bytes per kept row
  kBitmap = 2,   // physical_len bits per list; KeptSets is the same
  kCounts = 4    // how many rows each list has: KeptSets::lists is empty
};

struct Measure {
  bool retained_mass = false, output_error = false, oracle_recall = false;
};

// Of the angle that turns a key to another position.
enum class AngleMode {
  kUnspecified = 0,
  kExact = 1,     // (new - old) * f in float64
  kFp32Table = 2  // difference of float32 products: equals a model's float32 table
};

struct CompressRequest {
  Cache cache;
  std::vector<int32_t> layers;  // ascending indexes into CacheSpec::layers; empty: all
  std::vector<Sequence> sequences;
  Policy policy;
  ScoreInputs inputs;
  Act act;
  // Kept row j is turned to position j, and the next token's position is `kept`: not with
  // SelectOnly, and only where all lists have one length and `positions` of the sequences are
  // given.
  std::optional<AngleMode> renumber;
  LengthRule lengths = LengthRule::kAny;
  KeptFormat kept_format = KeptFormat::kIndices;
  Measure measure;
  // Observe goes on from these scores: a policy with window `all` over all layers.
  bool keep_state = false;
  std::optional<Group> group;  // ranks that decide together
};

// ---- the answer -------------------------------------------------------------------------

// Kept rows, ascending, in the numbering the cache had when the call began.
struct KeptSets {
  Granularity granularity = Granularity::kUnspecified;
  // Layer-major, then KV head; one per layer for kPerLayer; one in all for kPerSequence. None at
  // all with KeptFormat::kCounts.
  std::vector<std::vector<int32_t>> lists;
  std::vector<uint32_t> heads;   // KV heads per layer of the call
  std::vector<uint32_t> counts;  // rows per list, in every format

  // Of a (layer of the call, KV head), also where heads or layers share a list: its number, its
  // rows, and how many they are. At throws std::out_of_range where there are no lists.
  size_t NumberOf(uint32_t layer, uint32_t head) const;
  const std::vector<int32_t>& At(uint32_t layer, uint32_t head) const;
  uint32_t CountAt(uint32_t layer, uint32_t head) const;
};

struct LayerOutcome {
  uint32_t layer = 0;  // index into CacheSpec::layers
  uint32_t kept = 0;   // longest list
  uint32_t dropped = 0;
  uint32_t trimmed = 0;  // protected rows that did not fit the budget
  uint32_t nonfinite_tokens = 0;
  uint32_t skipped_rows = 0;
  uint32_t stage1 = 0, stage2 = 0;  // rows that criticalkv's stages chose, over the KV heads
  bool lse_suspect = false;
};

struct SequenceResult {
  uint64_t sequence_id = 0;
  uint32_t kv_revision = 0;  // send it with the next call
  uint64_t logical_len = 0;
  uint64_t kept = 0;  // new physical length
  uint64_t dropped = 0;
  uint64_t total_dropped = 0;
  uint64_t next_position = 0;  // logical_len, or kept if renumbered
  uint32_t blocks_used = 0;
  bool noop = false;  // the budget covered everything: no byte was written
  // The table to go on with: the old one (of a copy: the destination), cut at blocks_used. No freed
  // block is left in it. Of a select-only call: as it was.
  std::vector<int32_t> table;
  std::vector<uint32_t> rewritten;  // entries of `table` with changed bytes: drop their prefix hash
  KeptSets kept_sets;
  std::vector<LayerOutcome> layers;
};

struct Quality {  // of one (sequence, layer); a measure that was not asked for is absent or empty
  uint64_t sequence_id = 0;
  uint32_t layer = 0;  // index into CacheSpec::layers
  std::optional<float> mass_mean, mass_p5, error, error_p95, recall_mean;
  std::vector<float> head_mass_mean, head_mass_low, head_error, head_error_high, head_recall;
};

struct Timing {  // microseconds, measured by the service
  uint32_t queue = 0, score = 0, select = 0, move = 0, total = 0;
};

struct CompressResult {
  uint64_t job_id = 0;
  bool replayed = false;  // a stored answer
  Timing timing;
  PolicyParts policy;  // the expanded form that ran
  std::vector<SequenceResult> sequences;
  std::vector<Quality> quality;
};

// ---- what became of the cache -----------------------------------------------------------

enum class Outcome {
  kApplied,      // done (of a select-only call: answered)
  kUnchanged,    // nothing happened to the cache
  kDamaged,      // some sequences are lost: drop their rows and recompute them
  kUnavailable,  // no service right now, nothing was sent, nothing happened
};
std::string_view OutcomeName(Outcome outcome);  // "applied", "unchanged", "damaged", "unavailable"

// One per sequence of the request, in its order, whatever happened.
struct SequenceFate {
  uint64_t sequence_id = 0;
  Outcome outcome = Outcome::kUnchanged;  // never kUnavailable
  // When applied: the new physical length, revision and table. `kept_rows` is set when the answer
  // was lost and the lengths come from the ledger: per (layer of the call, head or shared set).
  uint64_t kept = 0;
  uint32_t kv_revision = 0;
  std::vector<int32_t> table;
  std::vector<uint32_t> kept_rows;
};

struct CompressOutcome {
  Outcome outcome = Outcome::kUnavailable;
  // OK when an answer came. Otherwise why none did, also when the ledger says kApplied.
  absl::Status status;
  std::optional<CompressResult> result;
  std::vector<SequenceFate> fates;
  // The service may still write: the blocks of damaged sequences and of a copy's destination must
  // not be reused until Session::Quiet(ticket) is true. 0: they may be reused at once.
  uint64_t quarantine = 0;

  std::vector<uint64_t> damaged() const;  // sequence ids
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_COMPRESS_H_
