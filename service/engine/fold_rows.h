// Adding up what query rows see: the sums that running scores are made of.
#ifndef KVTRIAGE_SERVICE_ENGINE_FOLD_ROWS_H_
#define KVTRIAGE_SERVICE_ENGINE_FOLD_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/kernels/backend.h"
#include "service/engine/running_scores.h"
#include "service/engine/triage_halves.h"

namespace kvtriage {

// What folding has found beside the sums.
struct FoldCounts {
  std::vector<std::vector<uint64_t>> usable;  // per layer and list: query rows that have voted
  std::vector<uint64_t> skipped;              // per layer: query rows left out
  uint64_t rows = 0;                          // query rows given
};

// Makes room for `columns` rows: new ones start at 0.
void Extend(uint32_t columns, RowSums& sums);

// Layers that nothing was added to get a list of zeros per KV head.
void FillEmpty(const std::vector<TriageLayer>& layers, RowSums& sums);

// Adds the contributions of the newest `rows` query rows of every layer's input, oldest first; the
// last of them is cached row `end` - 1 and sees all before it. Where the input is column sums,
// `rows` is 1 and they are added as they are. `sums` has at least `end` columns. With a decay, the
// sums are multiplied with it before each row; a maximum over the group is
// that of each row. POLICY_INVALID (field "inputs.column_sums.heads"):
// the sums were made of other lists; whatever `stop` gives. On an error `sums` is worthless.
absl::Status FoldRows(Backend& backend, const std::vector<TriageLayer>& layers, uint32_t end,
                      uint32_t rows, const PolicySpec& policy, const StopCheck& stop, RowSums& sums,
                      FoldCounts& counts);

// NO_USABLE_ROW (field "inputs", index = KV head) when query rows came and none of them could vote
// for some head.
absl::Status CheckUsable(const FoldCounts& counts);

// ScoreSequence from sums instead of query rows: pooled, and for kVatp weighed with V, as the
// policy says.
absl::Status ScoreSums(Backend& backend, const TriageSequence& sequence, const PolicySpec& policy,
                       const RowSums& sums, const StopCheck& stop, ScoredSequence& scored,
                       TriageResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_FOLD_ROWS_H_
