// Second pass: the scores of a range of tokens from one batch of window rows.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_TOKENS_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/logit_rule.h"
#include "kernels/cpu/aligned_floats.h"
#include "kernels/cpu/score_window.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Sizes of the running processor's tiles: GatherRows packs for them, and token ranges begin at
// multiples of panel_tokens.
struct TileShape {
  size_t rows = 0;
  size_t panel_tokens = 0;
};

TileShape ScoreTileShape();

struct ScoreTask {
  const ScoreRequest& request;
  uint32_t kv_head;
  const RowBatch& rows;
  const LogitRule& rule;
  bool first_batch, last_batch;
  // [N] each. Between batches they hold what is not finished yet; after the last one scores are
  // reduced (NaN for bad rows) and mass is final. `carry` (an unfinished query head's sum) may be
  // null when one batch holds all rows.
  float *scores, *mass, *carry;
};

// Work memory of one worker.
struct ScoreScratch {
  AlignedFloats pack, keys, values, tiles;
};

// Tokens [begin, end).
void ScoreTokens(const ScoreTask& task, uint64_t begin, uint64_t end, ScoreScratch& scratch);

// magnitudes[t] = |v|_1 of row begin + t, NaN for a row with a non-finite element.
void SumMagnitudes(const LayerRows& layer, uint32_t kv_head, uint64_t begin, uint64_t end,
                   ScoreScratch& scratch, float* magnitudes);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_TOKENS_H_
