// First pass, second half: the outputs of rows whose log-sum-exp is known (score_statistics.cuh). A
// sum of A v needs no rescaling then: the outputs of fixed parts of the tokens just add up. A
// dominant token is kept out of them, because v - o = (1 - A)(v - o'), o' = the output without it.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_OUTPUTS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_OUTPUTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_tiles.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.cuh"

namespace kvtriage {

// Floats from one token's weights to the next: pieces of four weights of eight tokens lie in
// different banks.
template <uint32_t kRows>
inline constexpr uint32_t kWeightPitch = kRows + 4;

// Puts A of a block's rows with a tile of tokens into shared memory, [token][rows]; 0 where a row
// does not see a token, and for its dominant one.
template <uint32_t kRows>
SIMT_DEVICE void TileWeights(const ScoreItem& item, const TileShared& shared,
                             const simt::Shared<simt::Vec16>& weights, const QueryRow* rows,
                             const float* q, uint32_t count, uint32_t tokens, uint32_t first) {
  const uint32_t token = simt::ThreadX() % tokens, p = first + token;
  const uint32_t groups = kScoreThreads / tokens, dk = item.rows.k.row_elems;
  for (uint32_t r0 = simt::ThreadX() / tokens * 4; r0 < kRows; r0 += groups * 4) {
    float products[4] = {};
    if (r0 < count) {
      MultiplyRows<4>(shared.keys, token, dk, q + uint64_t{r0} * dk, count - r0, products);
    }
    uint32_t bits[4] = {};
    SIMT_UNROLL
    for (uint32_t r = 0; r < 4; ++r) {
      if (r0 + r < count && shared.bad[token] == 0 && Sees(rows[r0 + r], p) &&
          rows[r0 + r].dominant != static_cast<int32_t>(p)) {
        bits[r] = simt::FloatBits(PairWeight(item.rule, rows[r0 + r], p, products[r]));
      }
    }
    weights[(token * kWeightPitch<kRows> + r0) / 4] = {bits[0], bits[1], bits[2], bits[3]};
  }
}

// Sums of A v of a part, for kRows rows and kPieces * kScoreThreads elements.
// Grid: x (part, block of rows), y KV heads, z items.
template <uint32_t kRows, uint32_t kPieces>
SIMT_KERNEL void SIMT_BOUNDS(kScoreThreads, 2) OutputPartsKernel(const ScoreItem* items) {
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY(), all_rows = query.row_count();
  const uint32_t blocks = (all_rows + kRows - 1) / kRows;
  if (kv_head >= query.k.heads || simt::BlockX() >= blocks * item.parts) return;
  const uint32_t part = simt::BlockX() / blocks, row0 = simt::BlockX() % blocks * kRows;
  const uint32_t count = all_rows - row0 < kRows ? all_rows - row0 : kRows;
  const uint64_t at = uint64_t{kv_head} * all_rows + row0;
  const QueryRow* const rows = query.rows + at;
  const float* const q = query.q_rows + at * query.k.row_elems;
  const uint32_t dv = query.v.row_elems, pitch = TilePitch(dv);
  const uint32_t tokens = TileTokens(query.k.row_elems > dv ? query.k.row_elems : dv);
  const TileShared shared = ShareTiles(query, tokens, true);
  const simt::Shared<simt::Vec16> weights(reinterpret_cast<std::byte*>(shared.numbers.data()));
  float sums[kPieces][kRows] = {};
  const uint32_t begin = part * item.part_tokens;
  const uint32_t end =
      query.tokens - begin < item.part_tokens ? query.tokens : begin + item.part_tokens;
  for (uint32_t first = begin; first < end; first += tokens) {
    LoadTokens(query, kv_head, first, end - first < tokens ? end - first : tokens, tokens, shared);
    TileWeights<kRows>(item, shared, weights, rows, q, count, tokens, first);
    simt::SyncThreads();
    SIMT_UNROLL
    for (uint32_t piece = 0; piece < kPieces; ++piece) {
      const uint32_t e = piece * kScoreThreads + simt::ThreadX();
      if (e >= dv) break;
      float of_tile[kRows] = {};  // apart, so that long sums stay sums of few numbers
      for (uint32_t t = 0; t < tokens; ++t) {
        // A bad row has no weight, but its elements are not to be multiplied.
        if (shared.bad[t] != 0) continue;
        const float v = shared.values[t * pitch + e];
        SIMT_UNROLL
        for (uint32_t r = 0; r < kRows; r += 4) {
          const simt::Vec16 w = weights[(t * kWeightPitch<kRows> + r) / 4];
          of_tile[r] = simt::Fma(simt::BitsFloat(w.x), v, of_tile[r]);
          of_tile[r + 1] = simt::Fma(simt::BitsFloat(w.y), v, of_tile[r + 1]);
          of_tile[r + 2] = simt::Fma(simt::BitsFloat(w.z), v, of_tile[r + 2]);
          of_tile[r + 3] = simt::Fma(simt::BitsFloat(w.w), v, of_tile[r + 3]);
        }
      }
      SIMT_UNROLL
      for (uint32_t r = 0; r < kRows; ++r) sums[piece][r] += of_tile[r];
    }
  }
  SIMT_UNROLL
  for (uint32_t piece = 0; piece < kPieces; ++piece) {
    const uint32_t e = piece * kScoreThreads + simt::ThreadX();
    if (e >= dv) break;
    SIMT_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      if (r >= count) break;
      const uint64_t place = (uint64_t{kv_head} * item.parts + part) * all_rows + row0 + r;
      simt::Store(item.part_outputs + place * dv + e, sums[piece][r]);
    }
  }
}

// One element of a row's output; what it is without the dominant token goes to rest_rows.
SIMT_DEVICE double JoinElement(const ScoreItem& item, uint32_t kv_head, uint64_t row,
                               uint32_t elem) {
  const QueryItem& query = item.rows;
  const uint32_t all_rows = query.row_count(), dv = query.v.row_elems;
  double sum = 0;
  for (uint32_t part = 0; part < item.parts; ++part) {
    const uint64_t place = (uint64_t{kv_head} * item.parts + part) * all_rows + row;
    sum += simt::Load(item.part_outputs + place * dv + elem);
  }
  const uint64_t at = uint64_t{kv_head} * all_rows + row;
  const QueryRow& of_row = query.rows[at];
  if (of_row.dominant < 0) return sum;
  const double rest = of_row.rest;
  simt::Store(item.rest_rows + at * dv + elem, rest > 0 ? static_cast<float>(sum / rest) : 0.0f);
  const auto token = static_cast<uint64_t>(of_row.dominant);
  const std::byte* const v = RowAt(query.v.rows, token) + kv_head * query.v.head_stride;
  const float value = LoadWide(v + elem * query.v.rows.elem_stride, query.v.dtype) *
                      RowScaleOf(query.v, kv_head, token);
  return sum + (1.0 - rest) * value;
}

// Grid: x units (a warp each), y KV heads, z items.
SIMT_KERNEL void SIMT_BOUNDS(kScoreThreads, 4) JoinOutputsKernel(const ScoreItem* items) {
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY(), lane = simt::ThreadX() % 32, dv = query.v.row_elems;
  const uint32_t unit = simt::BlockX() * (kScoreThreads / 32) + simt::ThreadX() / 32;
  if (kv_head >= query.k.heads || unit >= query.unit_count) return;
  const uint32_t per_unit = query.rows_per_unit();
  const uint64_t row0 = uint64_t{unit} * per_unit;
  QueryRow* const rows = query.rows + uint64_t{kv_head} * query.row_count() + row0;
  if (rows[0].limit == 0) return;
  float* const out = query.o_rows + (uint64_t{kv_head} * query.unit_count + unit) * dv;
  double square = 0;
  for (uint32_t e = lane; e < dv; e += 32) {
    double sum = 0;
    for (uint32_t r = 0; r < per_unit; ++r) sum += JoinElement(item, kv_head, row0 + r, e);
    const auto mean = static_cast<float>(sum / per_unit);
    simt::Store(out + e, mean);
    square += static_cast<double>(mean) * mean;
  }
  SIMT_UNROLL
  for (uint32_t step = 16; step > 0; step /= 2) {
    square += simt::ShuffleXor(simt::kAllLanes, square, step);
  }
  if (lane != 0) return;
  for (uint32_t r = 0; r < per_unit; ++r) rows[r].output_square = static_cast<float>(square);
  if (!IsFinite(static_cast<float>(square))) LeaveOut(query, kv_head, rows);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_OUTPUTS_CUH_
