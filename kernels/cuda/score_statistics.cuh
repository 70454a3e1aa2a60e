// First pass where only queries are given: the log-sum-exp of every row. Tokens are split into
// fixed parts whose results are joined in index order, so the bits depend on nothing but the
// numbers. The heaviest token of a row is kept out of the sums: where its weight A nears 1, what
// counts is 1 - A, which float32 sums over all tokens have lost.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_STATISTICS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_STATISTICS_CUH_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_tiles.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.cuh"

namespace kvtriage {

inline constexpr uint32_t kPartRows = 32;  // rows of a block of RowPartsKernel
inline constexpr uint32_t kThreadsOfRow = kScoreThreads / kPartRows;
inline constexpr float kMinusInf = -HUGE_VALF;

// The two sums as one; equal heaviest tokens: the first one stays.
SIMT_DEVICE RowPart JoinParts(const RowPart& a, const RowPart& b) {
  if (b.top == kMinusInf) return a;
  if (a.top == kMinusInf) return b;
  if (b.top > a.top) {
    return {b.rest + (1.0 + a.rest) * simt::Exp2Approx(a.top - b.top), b.top, b.token};
  }
  return {a.rest + (1.0 + b.rest) * simt::Exp2Approx(b.top - a.top), a.top, a.token};
}

// Every fourth logit of a row's tile, as one part.
SIMT_DEVICE RowPart PartOfTile(const simt::Shared<float>& logits, uint32_t pitch, uint32_t row,
                               uint32_t quarter, uint32_t tokens, uint32_t first) {
  float top = kMinusInf;
  uint32_t heaviest = 0;
  for (uint32_t t = quarter; t < tokens; t += kThreadsOfRow) {
    const float x = logits[row * pitch + t];
    if (x > top) {
      top = x;
      heaviest = t;
    }
  }
  RowPart part{0, top, static_cast<int32_t>(first + heaviest)};
  if (top == kMinusInf) return part;
  float rest = 0;
  for (uint32_t t = quarter; t < tokens; t += kThreadsOfRow) {
    const float x = logits[row * pitch + t];
    if (t != heaviest && x != kMinusInf) rest += simt::Exp2Approx(x - top);
  }
  part.rest = rest;
  return part;
}

// Puts the logits of a block's rows with a tile of tokens into shared memory; -Inf where a row does
// not see a token.
SIMT_DEVICE void TileLogits(const ScoreItem& item, const TileShared& shared, uint32_t pitch,
                            const QueryRow* rows, const float* q, uint32_t count, uint32_t tokens,
                            uint32_t first) {
  const uint32_t token = simt::ThreadX() % tokens, p = first + token;
  const uint32_t groups = kScoreThreads / tokens, dk = item.rows.k.row_elems;
  for (uint32_t r0 = simt::ThreadX() / tokens * 4; r0 < kPartRows; r0 += groups * 4) {
    float products[4] = {};
    if (r0 < count) {
      MultiplyRows<4>(shared.keys, token, dk, q + uint64_t{r0} * dk, count - r0, products);
    }
    SIMT_UNROLL
    for (uint32_t r = 0; r < 4; ++r) {
      float logit = kMinusInf;
      if (r0 + r < count && shared.bad[token] == 0 && Sees(rows[r0 + r], p)) {
        logit = Logit2(item.rule, rows[r0 + r], p, products[r]);
      }
      shared.numbers[(r0 + r) * pitch + token] = logit;
    }
  }
}

// Grid: x (part, block of rows), y KV heads, z items.
SIMT_KERNEL void SIMT_BOUNDS(kScoreThreads, 2) RowPartsKernel(const ScoreItem* items) {
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY(), all_rows = query.row_count();
  const uint32_t blocks = (all_rows + kPartRows - 1) / kPartRows;
  if (kv_head >= query.k.heads || simt::BlockX() >= blocks * item.parts) return;
  const uint32_t part = simt::BlockX() / blocks, row0 = simt::BlockX() % blocks * kPartRows;
  const uint32_t count = all_rows - row0 < kPartRows ? all_rows - row0 : kPartRows;
  const uint64_t at = uint64_t{kv_head} * all_rows + row0;
  const QueryRow* const rows = query.rows + at;
  const float* const q = query.q_rows + at * query.k.row_elems;
  const uint32_t elems =
      query.k.row_elems > query.v.row_elems ? query.k.row_elems : query.v.row_elems;
  const uint32_t tokens = TileTokens(elems), pitch = tokens + kThreadsOfRow;
  const TileShared shared = ShareTiles(query, tokens, query.reads_values != 0);
  const uint32_t row = simt::ThreadX() / kThreadsOfRow, quarter = simt::ThreadX() % kThreadsOfRow;
  RowPart sum{0, kMinusInf, -1};
  const uint32_t begin = part * item.part_tokens;
  const uint32_t end =
      query.tokens - begin < item.part_tokens ? query.tokens : begin + item.part_tokens;
  for (uint32_t first = begin; first < end; first += tokens) {
    LoadTokens(query, kv_head, first, end - first < tokens ? end - first : tokens, tokens, shared);
    TileLogits(item, shared, pitch, rows, q, count, tokens, first);
    simt::SyncThreads();
    sum = JoinParts(sum, PartOfTile(shared.numbers, pitch, row, quarter, tokens, first));
  }
  SIMT_UNROLL
  for (uint32_t step = 1; step < kThreadsOfRow; step *= 2) {
    const RowPart other{simt::ShuffleXor(simt::kAllLanes, sum.rest, step),
                        simt::ShuffleXor(simt::kAllLanes, sum.top, step),
                        simt::ShuffleXor(simt::kAllLanes, sum.token, step)};
    sum = (quarter & step) == 0 ? JoinParts(sum, other) : JoinParts(other, sum);
  }
  if (quarter == 0 && row < count) item.row_parts[(at + row) * item.parts + part] = sum;
}

// Joins a row's parts and its learned sink, whose value is 0. False when the numbers overflowed.
SIMT_DEVICE bool JoinRow(const ScoreItem& item, uint64_t at, QueryRow* row) {
  RowPart sum{0, kMinusInf, -1};
  for (uint32_t part = 0; part < item.parts; ++part) {
    sum = JoinParts(sum, item.row_parts[at * item.parts + part]);
  }
  // A sink far above every token would overflow relative to them, so the larger one is the measure.
  const double logit = sum.top, top = row->sink2 > logit ? row->sink2 : logit;
  const double unit = exp2(logit - top), others = sum.rest * unit + exp2(row->sink2 - top);
  const double total = unit + others, lse2 = top + log2(total);
  row->lse2 = static_cast<float>(lse2);
  row->lse2_low = static_cast<float>(lse2 - static_cast<double>(row->lse2));
  row->rest = static_cast<float>(others / total);
  // Two equal tokens have half of the weight each at most: neither may be treated on its own, or
  // they would differ.
  row->dominant = unit / total > 0.6 ? sum.token : -1;
  return IsFinite(row->lse2);
}

// Grid: x units (a thread each), y KV heads, z items.
SIMT_KERNEL void SIMT_BOUNDS(kScoreThreads, 4) JoinRowsKernel(const ScoreItem* items) {
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY();
  const uint32_t unit = simt::BlockX() * kScoreThreads + simt::ThreadX();
  if (kv_head >= query.k.heads || unit >= query.unit_count) return;
  const uint32_t per_unit = query.rows_per_unit();
  const uint64_t at = uint64_t{kv_head} * query.row_count() + uint64_t{unit} * per_unit;
  if (query.rows[at].limit == 0) return;
  bool finite = true;
  for (uint32_t r = 0; r < per_unit; ++r) {
    finite = JoinRow(item, at + r, query.rows + at + r) && finite;
  }
  if (!finite) LeaveOut(query, kv_head, query.rows + at);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_STATISTICS_CUH_
