// What one session's sequences looked like when we last answered: the fences against replays and
// races. Thread-safe.
#ifndef KVTRIAGE_SERVICE_ENGINE_SEQUENCE_TABLE_H_
#define KVTRIAGE_SERVICE_ENGINE_SEQUENCE_TABLE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/core/mutex.h"
#include "service/engine/running_scores.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// What an answered call did to a sequence.
enum class SequenceEffect : uint8_t {
  kNone,    // noop: the rows are as they were
  kAdvice,  // select only: the worker may have dropped the other rows itself, or not
  kCopied,  // the worker may go on with the copy or with the source
  kMoved,   // in place
};

// What it did to the positions at which the kept keys are rotated.
enum class PositionEffect : uint8_t {
  kSame,        // heads and layers that agreed on a row's position still do
  kDiffer,      // lists with different rows were kept under their old positions
  kRenumbered,  // all rows are at 0, 1, 2, ...
};

class SequenceTable {
 public:
  // Keeps the `limit` most recently used records; one with running scores is never given up for
  // another. `budget` is the memory for those scores; null: without end.
  explicit SequenceTable(uint32_t limit, std::shared_ptr<ScoreBudget> budget = nullptr);

  // Whether a call fits what we know. SEQUENCE_STALE with the call's number and the one we know;
  // fields are relative to the sequence. A sequence without a record, or with a higher generation
  // than its record, needs to be consistent in itself only. QUOTA_STATE (field "sequence_id") when
  // it has no record and every record has running scores.
  absl::Status Check(const SequenceSpec& call);

  // The first of a call's sequences that could not have running scores beside all those that have
  // some: a record with scores is never given up, so there may be no more of them than records.
  // Nothing when there is room for all.
  std::optional<size_t> FirstWithoutScoreRoom(std::span<const SequenceSpec> calls);

  // Whether one list of positions can be true of all heads and layers of a sequence that Check has
  // passed: not after they have kept different rows. POSITIONS_UNKNOWN (field "positions").
  absl::Status CheckPositions(const SequenceSpec& call);

  // Notes a successful call that kept `kept` rows (its longest list). Answers the new kv_revision:
  // one more when we wrote rows. Running scores of an older generation go.
  uint32_t Record(const SequenceSpec& call, SequenceEffect effect, uint64_t kept,
                  PositionEffect positions);

  // Whether there was a record. Running scores go with it.
  bool Forget(uint64_t sequence_id);

  // Running scores of the record of this generation; null when there are none.
  std::shared_ptr<const RunningScores> ScoresOf(uint64_t sequence_id, uint32_t generation);
  // Of a sequence with a record; null forgets them. Without a record nothing happens: it was
  // released.
  void SetScores(uint64_t sequence_id, std::shared_ptr<const RunningScores> scores);
  // An empty part of the memory for running scores.
  std::shared_ptr<ScoreLease> NewLease() const { return std::make_shared<ScoreLease>(budget_); }

  // The generation of a sequence's record; nothing when there is none.
  std::optional<uint32_t> GenerationOf(uint64_t sequence_id);
  // The newest `rows` rows of a sequence never were.
  void TakeBack(uint64_t sequence_id, uint64_t rows);

 private:
  struct Length {
    uint64_t dropped = 0;           // rows dropped since the sequence began
    uint64_t rows = 0;              // rows it has at least: appended ones come on top
    bool positions_differ = false;  // by head or layer
  };
  struct Known {
    uint32_t generation = 0;
    uint32_t kv_revision = 0;
    Length length;
    // The length if the worker did not follow a kAdvice or kCopied answer; else equal to `length`.
    Length untouched;
    std::shared_ptr<const RunningScores> scores;
    std::list<uint64_t>::iterator used;

    bool Followed(const SequenceSpec& call) const { return call.total_dropped == length.dropped; }
    // The one that the call goes on with.
    const Length& Of(const SequenceSpec& call) const { return Followed(call) ? length : untouched; }
  };

  void Put(Known& known, std::shared_ptr<const RunningScores> scores)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the least recently used record without running scores, but not `but`.
  void MakeRoom(uint64_t but) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint32_t limit_;
  const std::shared_ptr<ScoreBudget> budget_;
  Mutex mu_;
  std::unordered_map<uint64_t, Known> records_ ABSL_GUARDED_BY(mu_);
  std::list<uint64_t> used_ ABSL_GUARDED_BY(mu_);  // least recently used first
  uint32_t scored_ ABSL_GUARDED_BY(mu_) = 0;       // records with running scores
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_SEQUENCE_TABLE_H_
