// What goes into and comes out of Session::Observe and Session::Rewind: eviction while a model
// decodes. Every call adds what the queries of new rows have seen to running scores that the
// service keeps, and cuts sequences back that have outgrown their budget.
#ifndef KVTRIAGE_CLIENT_OBSERVE_H_
#define KVTRIAGE_CLIENT_OBSERVE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/cache_description.h"
#include "kvtriage/compress.h"
#include "kvtriage/policy.h"

namespace kvtriage::client {

struct ObserveStep {
  // Policies with window `all`: `rows_count` new rows, whose K and V are in the cache, so that
  // physical_len = the rows of the last answer + rows_count. Without row_limits.
  Sequence sequence;
  // The newest of the new rows are drafts: not accepted yet. They are with the next call, unless
  // Rewind takes them back before. At most 64; no eviction meanwhile.
  uint32_t draft_rows = 0;
  uint32_t trigger = 0;          // evict when physical_len is above it; 0: the budget
  bool accumulate_only = false;  // never evict: a chunk of a prefill

  bool may_evict() const { return !accumulate_only && draft_rows == 0; }
};

struct ObserveRequest {
  Cache cache;  // all its layers
  // With the first call of a sequence; later the same or none. The amount is kept_tokens, and all
  // lists get one length.
  std::optional<Policy> policy;
  std::vector<ObserveStep> steps;
  ScoreInputs inputs;  // of the new rows
  // What follows is for the sequences that are cut back.
  Act act;
  std::optional<AngleMode> renumber;
  LengthRule lengths = LengthRule::kAny;
  KeptFormat kept_format = KeptFormat::kIndices;
};

struct ObserveStepResult {
  uint64_t sequence_id = 0;
  std::optional<SequenceResult> evicted;  // when the sequence was cut back
  uint32_t draft_rows = 0;                // outstanding
  // The sequence had no running scores, or they did not fit its rows: they begin with this call.
  bool started = false;
};

struct ObserveResult {
  uint64_t job_id = 0;
  bool replayed = false;  // a stored answer
  Timing timing;
  PolicyParts policy;  // the expanded form that ran
  std::vector<ObserveStepResult> steps;
};

struct ObserveOutcome {
  Outcome outcome = Outcome::kUnavailable;
  // OK when an answer came. Otherwise why none did, also when the ledger says kApplied.
  absl::Status status;
  std::optional<ObserveResult> result;
  // One per step. kApplied: its new rows count, and `kept` is its length, cut back or not.
  // kUnchanged: to this sequence the call never happened; bring its rows with the next one.
  std::vector<SequenceFate> fates;
  uint64_t quarantine = 0;  // as CompressOutcome::quarantine

  std::vector<uint64_t> damaged() const;  // sequence ids
};

struct RewindRequest {
  uint64_t sequence_id = 0;
  uint32_t generation = 0;
  uint32_t rows = 0;  // newest draft rows to forget, at least 1
};

struct RewindResult {
  uint32_t draft_rows = 0;    // still outstanding
  uint64_t physical_len = 0;  // rows that count now
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_OBSERVE_H_
