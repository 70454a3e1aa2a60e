// First pass when only queries are given: the log-sum-exp of every row, and its output when the
// scorer needs it. Tokens are split into fixed parts; parts can run at the same time and are joined
// in index order, so the bits do not depend on the threads.
//
// The heaviest token of a row is kept out of the sums until the end. Where its weight A nears 1,
// what counts is 1 - A and v - o: differences that are lost in float32 sums over all tokens, and
// exact to the last digits when they are taken from the sums over the others.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_STATISTICS_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/core/logit_rule.h"
#include "kernels/cpu/aligned_floats.h"
#include "kernels/cpu/score_window.h"
#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// What one part of the tokens gives for the rows of a batch. Logits are in base 2; weights are
// powers of two relative to `top`, a whole number near the largest logit. -Inf when nothing is
// visible.
struct PartStatistics {
  std::vector<float> top;
  std::vector<float> heaviest;  // logit of the token kept out
  std::vector<int32_t> heaviest_token;
  std::vector<double> sum;  // of the other weights
  // [rows][pitch]: sums of weight * v of the others, what rounding has added to them, and v of the
  // token kept out.
  AlignedFloats output, lost, heaviest_value;
};

struct StatisticsTask {
  const LayerRows& layer;
  uint32_t kv_head;
  const RowBatch& rows;
  bool reads_values;  // a bad V hides its row
  bool outputs;
  const LogitRule& rule;
};

// Work memory of one worker.
struct StatisticsScratch {
  AlignedFloats pack, keys, values, tile, lane_sums;
};

// Elements from one output row to the next.
size_t OutputPitch(size_t elems);

// Takes tokens [begin, end) into account.
void CollectStatistics(const StatisticsTask& task, uint64_t begin, uint64_t end,
                       StatisticsScratch& scratch, PartStatistics& part);

// Joins the parts of the rows of `batch` and their learned sinks, whose value is 0, in
// batch.statistics. `pitch` is 0 when outputs were not asked for.
void JoinStatistics(const std::vector<PartStatistics>& parts, size_t pitch, RowBatch& batch);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_STATISTICS_H_
