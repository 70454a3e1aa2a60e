// The query rows that vote for one KV head, packed for the kernels.
#ifndef KVTRIAGE_KERNELS_CPU_SCORE_WINDOW_H_
#define KVTRIAGE_KERNELS_CPU_SCORE_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Which rows of a request's tensors vote. The rows of a group are numbered head by head; with PRE
// window row by window row, because the heads of a row are averaged.
struct Window {
  size_t rows = 0;        // W'
  size_t first_row = 0;   // row of the tensors that window row 0 is
  size_t group = 1;       // query heads per KV head
  bool averaged = false;  // PRE

  size_t group_rows() const { return rows * group; }
};

Window WindowOf(const ScoreRequest& request);

// Rows that window row `row` may see by its place: [FirstVisible(limit), limit), in [0, N].
int64_t LimitOf(const ScoreRequest& request, const Window& window, size_t row);
int64_t FirstVisible(const LayerRows& layer, int64_t limit);

// The first two rows that a window row may see by its own place, of those whose K (unless A is
// given) and V (if the scorer reads it) are finite; the number of rows where there is no such row.
// The window row sees nothing exactly when its limit does not reach `first`, and one token exactly
// when it reaches `first` but not `second`.
struct GoodRows {
  uint64_t first = 0, second = 0;
};

// Of every window row; one entry for all of them unless the layer is a sliding one.
using GoodRowsOfWindow = std::vector<GoodRows>;

GoodRowsOfWindow FindGoodRows(const ScoreRequest& request, const Window& window, uint32_t kv_head);

// What a first pass found for the rows of a batch.
struct RowStatistics {
  std::vector<double> lse2;  // base 2; -Inf when nothing is visible
  // A token that holds clearly more than half of the weight (-1: none), and 1 - A of the heaviest.
  std::vector<int32_t> dominant;
  std::vector<float> rest;
  // [rows][pitch]: outputs, and those of all tokens but the heaviest. Empty (pitch 0) when the
  // scorer needs none.
  AlignedFloats output, rest_output;
  size_t pitch = 0;
};

// Some rows of a group, bad ones left out. Packed as row_blocks.h says.
struct RowBatch {
  // Votes [previous end, end) belong to one query head (with PRE: to the group); complete when no
  // later batch has more of them.
  struct Segment {
    size_t end = 0;
    bool complete = false;
  };

  size_t rows = 0;           // query rows
  size_t rows_per_vote = 1;  // 1; with PRE the size of the group
  AlignedFloats q;           // blocks of [rows][dk]; unused when A is given
  AlignedFloats o;           // blocks of [votes()][dv]; only when the scorer needs outputs
  // Per row. It sees tokens [first, limit), clipped to [0, N]; lse2 + lse2_low is the log-sum-exp
  // in base 2, slope2 the ALiBi slope (0: none) and sink2 the learned sink (-Inf: none) in base 2.
  std::vector<int32_t> first, limit;
  std::vector<float> lse2, lse2_low, slope2;
  std::vector<double> sink2;
  std::vector<uint32_t> query_head, tensor_row;
  // Per vote: |o|^2, and 0 instead of 1 where exact deletion is undefined (one visible token).
  std::vector<float> output_square, drop_weight;
  std::vector<Segment> segments;
  RowStatistics statistics;  // of a first pass; without one no row has a dominant token
  std::vector<float> gathered_q, gathered_o;  // work memory of GatherRows
  uint32_t usable = 0, skipped = 0;           // rows that vote, rows left out

  size_t votes() const { return rows / rows_per_vote; }
  // Tokens from here on are invisible to all rows.
  uint64_t LargestLimit() const;
  // Whether rows [row, row + count), apart from bad tokens, see any of tokens [begin, end); all of
  // them.
  bool SeesSome(size_t row, size_t count, uint64_t begin, uint64_t end) const;
  bool SeesAll(size_t row, size_t count, uint64_t begin, uint64_t end) const;
};

// Collects rows [begin, end) of the group's numbering.
void GatherRows(const ScoreRequest& request, const Window& window, uint32_t kv_head,
                const GoodRowsOfWindow& good, size_t begin, size_t end, size_t block_rows,
                RowBatch& batch);

// Takes over what a first pass has put into batch.statistics: log-sum-exps and, when there are any,
// outputs of `elems` elements. Rows whose numbers overflowed are left out from now on.
void ApplyStatistics(size_t elems, size_t block_rows, RowBatch& batch);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_SCORE_WINDOW_H_
