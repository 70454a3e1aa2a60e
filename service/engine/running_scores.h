// What Observe knows of one sequence between calls: the sums of its query rows' contributions, and
// the queries of draft rows that have not been added yet. Values: a call makes a new one from the
// old and puts it in its place when everything else has gone well.
#ifndef KVTRIAGE_SERVICE_ENGINE_RUNNING_SCORES_H_
#define KVTRIAGE_SERVICE_ENGINE_RUNNING_SCORES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "service/engine/score_budget.h"
#include "service/engine/triage.h"
#include "service/policy/policy.h"

namespace kvtriage {

// Of one layer: float32 [lists, columns], a list per KV head, or one for all heads.
struct LayerSums {
  uint32_t lists = 0;  // 0: nothing was added yet
  std::vector<float> sums;
};

// Of a sequence: the contributions of its rows to its first `columns` rows. Before pooling; for
// kVatp the sum of A alone.
struct RowSums {
  uint32_t columns = 0;
  std::vector<LayerSums> layers;

  uint64_t bytes() const;
};

// Queries of draft rows of one layer as float32, [rows][Hq][...], with what joins their logits,
// [Hq]. Empty where the call brought none.
struct DraftLayer {
  std::vector<float> q, o, lse, sink_logits, alibi_slopes;
};

// Draft rows are added later, as they would have been then: everything but K and V is kept.
struct DraftRows {
  uint32_t rows = 0;
  AttentionInput input;            // without views and rotation
  std::vector<int32_t> positions;  // [planes][rows]; empty: the queries are from after RoPE
  std::vector<DraftLayer> layers;

  uint64_t bytes() const;
};

struct RunningScores {
  std::shared_ptr<ScoreLease> lease;
  // What the sums are sums of; nothing of it counts while `sums` is null.
  Scorer scorer = Scorer::kAttention;
  Reduce reduce = Reduce::kSum;
  // Set by the first Observe; scores that a Compress has left have none yet.
  std::optional<PolicySpec> policy;
  uint64_t rows = 0;     // known, drafts among them
  uint64_t dropped = 0;  // since the sequence began
  uint32_t drafts = 0;   // newest rows that are not accepted; the first `drafts` of `draft`
  // Of the rows before the drafts. Null: the policy is computed afresh.
  std::shared_ptr<const RowSums> sums;
  std::shared_ptr<const DraftRows> draft;  // null when there are none, or nothing is summed
  // After an answer that the worker may follow or not (select only, copy): the scores if it does.
  std::shared_ptr<const RunningScores> followed;

  uint64_t bytes() const;
};

// The scores that a call goes on with, which says how many rows were dropped: the same, those of a
// worker that has followed our last answer, or null when they fit neither.
std::shared_ptr<const RunningScores> Settled(const std::shared_ptr<const RunningScores>& scores,
                                             uint64_t total_dropped);

// Sums of the rows that `result` has kept, of a sequence of `rows` rows; rows without a sum have 0.
// Null when no single sequence can go on with the lists: they differ in length, or share sums and
// differ.
std::shared_ptr<const RowSums> GatherSums(const RowSums& sums, const TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_RUNNING_SCORES_H_
