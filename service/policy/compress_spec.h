// What a checked request wants: the plain values between service/validate and service/engine. Ids
// and offsets are not resolved yet; block tables and index lists are the request's own, copied
// once.
#ifndef KVTRIAGE_SERVICE_POLICY_COMPRESS_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_COMPRESS_SPEC_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtriage/kernels/attention.h"
#include "kvtriage/kernels/rotate.h"
#include "service/policy/cache_spec.h"
#include "service/policy/group_spec.h"
#include "service/policy/policy.h"

namespace kvtriage {

using IdempotencyKey = std::array<uint8_t, 16>;

struct RequestHeader {
  IdempotencyKey key{};
  bool resolve = false;  // run nothing: what became of the key?
};

enum class Sharing : uint8_t { kUnspecified, kAllPrivate, kPrefix, kBitmap, kUnknown };

// Explicit protected rows. Lists are ascending without repeats.
struct ExplicitRows {
  Granularity granularity = Granularity::kPerSequence;
  std::vector<std::vector<int32_t>> lists;  // 1, layers, or layers*heads; empty = none
};

// Positions of rows in order, each below 2^31.
struct PositionsSpec {
  std::optional<uint64_t> first;  // row i is at first + i, or
  std::vector<int32_t> list;      // one per row; with M-RoPE three planes back to back
};

struct SequenceSpec {
  uint64_t sequence_id = 0;
  uint32_t generation = 0;
  uint32_t kv_revision = 0;
  uint64_t logical_len = 0;
  uint64_t physical_len = 0;  // N
  uint64_t total_dropped = 0;
  uint32_t first_slot = 0;
  std::vector<int32_t> table;
  std::vector<int32_t> destination;  // copy only
  Sharing sharing = Sharing::kUnspecified;
  uint32_t shared_blocks = 0;               // kPrefix
  std::vector<uint8_t> shared_bitmap;       // kBitmap, LSB first
  uint32_t rows_begin = 0, rows_count = 0;  // on the row axis of the inputs
  std::vector<int32_t> row_limits;          // empty, or rows_count entries
  ExplicitRows protect;
  std::optional<PositionsSpec> positions;  // of the cached rows; a list has N or 3N entries

  // Whether others can read the block of table entry `index`.
  bool IsShared(uint64_t index) const;
};

struct ScoreInputsSpec {
  AttentionSource source = AttentionSource::kNone;
  double softmax_scale = 0;
  bool before_rope = false;  // q is from before RoPE
  std::optional<TensorSpec> q, o, lse, a, z, sums;
  double logit_softcap = 0;                             // 0 = off
  std::optional<TensorSpec> sink_logits, alibi_slopes;  // one number per layer and query head
  std::optional<TensorSpec> output_projection;          // [hidden, Hq, dv], read by kCritical
  std::optional<TensorSpec> query_mean;                 // [1, Hq, dk], read by kExpectedAttention,
  std::optional<TensorSpec> query_covariance;           // and [dk, Hq, dk]: together or not at all
  LseBase lse_base = LseBase::kE;
  HeadAxis sums_axis = HeadAxis::kQuery;
};

enum class ActKind : uint8_t { kSelectOnly, kCopy, kInPlace };

struct ActSpec {
  ActKind kind = ActKind::kSelectOnly;
  uint64_t destination_cache_id = 0;  // kCopy
  uint32_t ledger_slot = 0;           // kInPlace
  bool rows_stay = false;             // kInPlace: rows are overwritten where they stand, none moves
  std::optional<AngleMode> renumber;  // kept row j is rotated to position j
};

enum class LengthRule : uint8_t { kAny, kPerLayer, kOne };

// How an answer says which rows were kept: their numbers, one bit per row, or only how many.
enum class KeptFormat : uint8_t { kIndices, kBitmap, kCounts };

struct MeasureSpec {
  bool retained_mass = false, output_error = false, oracle_recall = false;
  bool any() const { return retained_mass || output_error || oracle_recall; }
};

struct CompressSpec {
  RequestHeader header;
  uint64_t cache_id = 0;
  std::vector<uint32_t> layers;  // indexes into the cache's layers, ascending; empty = all
  std::vector<SequenceSpec> sequences;
  PolicySpec policy;
  ScoreInputsSpec inputs;
  ActSpec act;
  LengthRule lengths = LengthRule::kAny;
  KeptFormat format = KeptFormat::kIndices;
  MeasureSpec measure;
  bool keep_state = false;  // the scores are where Observe goes on: window all, a sum of rows
  std::optional<GroupSpec> group;
  // No queries came for a score that adds up over all rows: the running scores of the sequences
  // take their place.
  bool from_running_scores = false;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_COMPRESS_SPEC_H_
