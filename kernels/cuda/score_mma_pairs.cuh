// What the pairs of a matrix product add to the scores, and those that are computed directly.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_MMA_PAIRS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_MMA_PAIRS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_mma_rows.cuh"
#include "kernels/cuda/score_terms.cuh"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// What the pairs of a launch have in common.
struct MmaWork {
  const ScoreItem* item;
  uint32_t kv_head, first;  // token of the sequence that the warp's token 0 is
};

// sum over k of (c v_k - beta o_k)^2, by a whole warp.
SIMT_DEVICE float SquareByWarp(const MmaWork& work, const MmaPair& pair, float c, float beta) {
  const QueryItem& query = work.item->rows;
  const uint64_t token = uint64_t{work.first} + pair.token;
  const std::byte* const v = RowAt(query.v.rows, token) + work.kv_head * query.v.head_stride;
  const uint32_t number = query.unit_begin + pair.row;
  const uint32_t head = work.kv_head * query.group + number / query.window_rows;
  const uint32_t tensor_row = query.first_row + number % query.window_rows;
  float sum = 0;
  for (uint32_t e = simt::ThreadX() % 32; e < query.v.row_elems; e += 32) {
    const float x = simt::Fma(c, LoadWide(v + e * query.v.rows.elem_stride, query.v.dtype),
                              -(beta * TensorAt(query.o, tensor_row, head, e)));
    sum = simt::Fma(x, x, sum);
  }
  SIMT_UNROLL
  for (uint32_t step = 16; step > 0; step /= 2) {
    sum += simt::ShuffleXor(simt::kAllLanes, sum, step);
  }
  return sum;
}

// By a whole warp: adds the terms of the listed pairs, in order, to their tokens' direct sums.
template <ScoreTerm kTerm>
SIMT_DEVICE void AddListedPairs(const MmaWork& work, const simt::Shared<MmaPair>& pairs,
                                uint32_t list, uint32_t count, const simt::Shared<float>& direct,
                                uint32_t tokens) {
  const QueryItem& query = work.item->rows;
  simt::SyncWarp(simt::kAllLanes);
  for (uint32_t i = 0; i < count; ++i) {
    const MmaPair pair = pairs[list + i];
    const QueryRow& row = query.rows[uint64_t{work.kv_head} * query.unit_count + pair.row];
    const float z = pair.product * work.item->rule.scale;
    float factor = pair.weight, c = 1, beta = 1;
    if constexpr (kTerm == ScoreTerm::kKey) factor *= z;
    if constexpr (kTerm == ScoreTerm::kJoint) {
      c = 1.0f + z;
      beta = z;
    }
    if constexpr (kTerm == ScoreTerm::kDrop) {
      const float rest =
          pair.weight > 0.5f ? PlainRest(work.item->rule, row, pair.product) : 1.0f - pair.weight;
      factor *= simt::DivideApprox(row.drop_weight, AtLeastMillionth(rest));
    }
    const float term = factor * (factor * SquareByWarp(work, pair, c, beta));
    if (simt::ThreadX() % 32 == 0) direct[tokens + pair.token] += term;
  }
  simt::SyncWarp(simt::kAllLanes);
}

// One pair of the matrix products: what it adds, and whether it has to be listed instead.
struct MmaTerm {
  float term, weight;
  bool listed;
};

template <ScoreTerm kTerm>
SIMT_DEVICE MmaTerm TermOf(const LogitRule& rule, const MmaColumn& column, bool visible, float norm,
                           float product, float dot) {
  const float exponent = simt::Fma(product, rule.scale2, -column.lse2);
  const float a = visible ? simt::Exp2Approx(exponent) : 0.0f;
  if constexpr (kTerm == ScoreTerm::kMass) {
    return {a, a, false};
  } else if constexpr (kTerm == ScoreTerm::kValue) {
    return {a * a, a, false};
  } else {
    const float z = visible ? product * rule.scale : 0.0f;
    float factor = a, squares, distance;
    if constexpr (kTerm == ScoreTerm::kJoint) {
      const float c = 1.0f + z;
      squares = simt::Fma(z * z, column.output_square, c * c * norm);
      distance = simt::Fma(-2.0f * (c * z), dot, squares);
    } else {
      squares = norm + column.output_square;
      distance = simt::Fma(-2.0f, dot, squares);
      // Above a half 1 - A is not this, but then the pair is listed.
      factor *= kTerm == ScoreTerm::kKey
                    ? z
                    : simt::DivideApprox(column.drop_weight, AtLeastMillionth(1.0f - a));
    }
    if (!visible) return {0, 0, false};
    const bool listed = a > 0.5f || distance < squares * kCancelled;
    return {listed ? 0.0f : factor * (factor * distance), a, listed};
  }
}

// The warp's list of pairs.
struct MmaList {
  uint32_t at;     // of its first entry
  uint32_t count;  // the same in all lanes
};

// Enters the pairs that `bits` (4 * tile + place in the accumulator) marks, in a fixed order.
template <ScoreTerm kTerm, uint32_t kD, uint32_t kTiles>
SIMT_DEVICE void ListPairs(const MmaWork& work, const MmaShared<kD>& shared,
                           const MmaColumn (&columns)[2], const float (&z)[kTiles][4],
                           uint32_t bits, uint32_t row0, uint32_t direct, MmaList* list) {
  const uint32_t lane = simt::ThreadX() % 32;
  SIMT_UNROLL
  for (uint32_t m = 0; m < kTiles; ++m) {
    SIMT_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      const bool mine = (bits >> (m * 4 + e) & 1) != 0;
      const uint32_t lanes = simt::Ballot(simt::kAllLanes, mine);
      if (lanes == 0) continue;
      if (list->count + simt::Popcount(lanes) > kMmaPairs) {
        AddListedPairs<kTerm>(work, shared.pairs, list->at, list->count, shared.direct, direct);
        list->count = 0;
      }
      if (mine) {
        const uint32_t before = simt::Popcount(lanes & ((1u << lane) - 1));
        const float exponent = simt::Fma(z[m][e], work.item->rule.scale2, -columns[e % 2].lse2);
        shared.pairs[list->at + list->count + before] = {
            m * 16 + lane / 4 + e / 2 * 8, row0 + e % 2, simt::Exp2Approx(exponent), z[m][e]};
      }
      list->count += simt::Popcount(lanes);
    }
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_PAIRS_CUH_
