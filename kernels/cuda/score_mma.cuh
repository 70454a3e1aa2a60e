// Second pass on tensor cores, for rows of bf16 or f16 as engines have them: tokens are the M rows
// of the matrix instruction, query rows the N columns. A warp keeps the K (and V) fragments of its
// tokens in registers and walks over all query rows, so a score is finished inside one warp: no
// atomics, no sums between blocks, the same bits for any grid. K and V are read once.
//
// Products of 16-bit numbers are exact and add up in float32. Where the square of a difference has
// lost its digits in the expansion, or a weight is above a half, a pair goes to a short list of its
// warp and is computed from v and o directly; pairs of a token enter it in the order of the query
// rows whatever the token's place is.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_MMA_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_MMA_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_mma_shape.h"
#include "kernels/cuda/score_terms.cuh"
#include "kernels/cuda/simt.h"

namespace kvtriage {

// What a query row needs beside its products.
struct MmaColumn {
  float lse2, output_square, drop_weight;
  int32_t first, limit;
};

// The columns of two tiles of query rows, a list of each number.
class MmaColumns {
 public:
  static constexpr uint32_t kNumbers = 5;

  SIMT_DEVICE MmaColumns(std::byte* bytes, uint32_t rows)
      : floats_(bytes), places_(bytes), rows_(rows) {}
  SIMT_DEVICE MmaColumn At(uint32_t buffer, uint32_t row) const {
    const uint32_t at = buffer * kNumbers * rows_ + row;
    return {floats_[at], floats_[at + rows_], floats_[at + 2 * rows_], places_[at + 3 * rows_],
            places_[at + 4 * rows_]};
  }
  SIMT_DEVICE void Set(uint32_t buffer, uint32_t row, const MmaColumn& column) const {
    const uint32_t at = buffer * kNumbers * rows_ + row;
    floats_[at] = column.lse2;
    floats_[at + rows_] = column.output_square;
    floats_[at + 2 * rows_] = column.drop_weight;
    places_[at + 3 * rows_] = column.first;
    places_[at + 4 * rows_] = column.limit;
  }

 private:
  simt::Shared<float> floats_;
  simt::Shared<int32_t> places_;
  uint32_t rows_;
};

// A pair that is computed directly.
struct MmaPair {
  uint32_t token, row;  // in the warp's tokens; number of the unit
  float weight, product;
};

template <uint32_t kD>
struct MmaShared {
  static constexpr uint32_t kPitch = MmaPitch(kD);
  std::byte* rows;              // [staged rows][kPitch]: K and V first, then Q and O twice
  MmaColumns columns;           // of two tiles of query rows
  simt::Shared<MmaPair> pairs;  // [warps][kMmaPairs]
  simt::Shared<float> direct;   // [warps][tokens of a warp]
};

template <uint32_t kD>
SIMT_DEVICE MmaShared<kD> ShareMma(bool outputs) {
  constexpr MmaShape kShape = MmaShapeOf(kD);
  const size_t rows = size_t{MmaStagedRows(kD, outputs)} * MmaPitch(kD);
  const size_t columns = rows + MmaColumnBytes(kShape.query_rows);
  const size_t pairs = columns + kMmaWarps * kMmaPairs * sizeof(MmaPair);
  return {simt::SharedMemory(0), MmaColumns(simt::SharedMemory(rows), kShape.query_rows),
          simt::Shared<MmaPair>(simt::SharedMemory(columns)),
          simt::Shared<float>(simt::SharedMemory(pairs))};
}

// Rows that are staged: element strides in bytes, and whether pieces of 16 bytes may be copied.
struct MmaRows {
  uint64_t elem_stride;
  uint32_t elems;
  bool wide;
};

// Copies elements [8 * chunk, 8 * chunk + 8) of a row, zeros for those behind its end; a null row
// is zeros. Wide pieces land when their group of copies is waited for.
SIMT_DEVICE void StageChunk(const MmaRows& rows, const std::byte* row, uint32_t chunk,
                            const std::byte* any, std::byte* to) {
  const bool inside = row != nullptr && chunk * 8 < rows.elems;
  if (rows.wide) {
    return simt::AsyncCopy16(to, inside ? row + chunk * 16 : any, inside ? 16 : 0);
  }
  uint32_t pairs[4] = {};
  for (uint32_t i = 0; inside && i < 8; ++i) {
    const uint32_t e = chunk * 8 + i;
    if (e >= rows.elems) break;
    const uint32_t bits = simt::Load(reinterpret_cast<const uint16_t*>(row + e * rows.elem_stride));
    pairs[i / 2] |= bits << i % 2 * 16;
  }
  const simt::Shared<simt::Vec16> staged(to);
  staged[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// By all threads: a block's tokens.
template <uint32_t kD>
SIMT_DEVICE void StageTokens(const DeviceView& view, bool wide, uint32_t kv_head, uint32_t first,
                             uint32_t count, std::byte* to) {
  constexpr uint32_t kChunks = kD / 8, kTokens = MmaShapeOf(kD).block_tokens;
  const MmaRows rows{view.rows.elem_stride, view.row_elems, wide};
  for (uint32_t i = simt::ThreadX(); i < kTokens * kChunks; i += kMmaThreads) {
    const uint32_t token = i / kChunks, chunk = i % kChunks;
    const std::byte* const row =
        token < count ? RowAt(view.rows, uint64_t{first} + token) + kv_head * view.head_stride
                      : nullptr;
    StageChunk(rows, row, chunk, view.rows.head, to + token * MmaPitch(kD) + chunk * 16);
  }
}

// By all threads: query rows [unit0, unit0 + query rows) of a tensor.
template <uint32_t kD>
SIMT_DEVICE void StageQueries(const QueryItem& query, const DeviceTensor& tensor, uint32_t elems,
                              bool wide, uint32_t kv_head, uint32_t unit0, std::byte* to) {
  constexpr uint32_t kChunks = kD / 8, kRows = MmaShapeOf(kD).query_rows;
  const MmaRows rows{tensor.elem_stride, elems, wide};
  for (uint32_t i = simt::ThreadX(); i < kRows * kChunks; i += kMmaThreads) {
    const uint32_t r = i / kChunks, chunk = i % kChunks, unit = unit0 + r;
    const std::byte* row = nullptr;
    if (unit < query.unit_count) {
      const uint32_t number = query.unit_begin + unit;
      const uint32_t head = kv_head * query.group + number / query.window_rows;
      row = tensor.base +
            uint64_t{query.first_row + number % query.window_rows} * tensor.row_stride +
            head * tensor.head_stride;
    }
    StageChunk(rows, row, chunk, tensor.base, to + r * MmaPitch(kD) + chunk * 16);
  }
}

// By all threads: a tile of query rows, into one of two buffers, as one group of copies.
template <uint32_t kD, bool kOutputs>
SIMT_DEVICE void StageTile(const ScoreItem& item, uint32_t kv_head, uint32_t unit0, uint32_t buffer,
                           const MmaShared<kD>& shared) {
  const QueryItem& query = item.rows;
  constexpr uint32_t kRows = MmaShapeOf(kD).query_rows;
  if (unit0 < query.unit_count) {
    std::byte* const to = shared.rows + size_t{buffer} * kRows * MmaPitch(kD);
    StageQueries<kD>(query, query.q, query.k.row_elems, item.wide.q != 0, kv_head, unit0, to);
    if constexpr (kOutputs) {
      StageQueries<kD>(query, query.o, query.o_elems, item.wide.o != 0, kv_head, unit0,
                       to + size_t{2} * kRows * MmaPitch(kD));
    }
    for (uint32_t r = simt::ThreadX(); r < kRows; r += kMmaThreads) {
      MmaColumn column{0, 0, 0, 0, 0};  // sees nothing
      if (unit0 + r < query.unit_count) {
        const QueryRow& row = query.rows[uint64_t{kv_head} * query.unit_count + unit0 + r];
        column = {row.lse2, row.output_square, row.drop_weight, row.first, row.limit};
      }
      shared.columns.Set(buffer, r, column);
    }
  }
  simt::AsyncCommit();
}

template <bool kBf16>
SIMT_DEVICE void Multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  if constexpr (kBf16) {
    simt::MmaBf16(d, a, b);
  } else {
    simt::MmaF16(d, a, b);
  }
}

template <bool kBf16>
SIMT_DEVICE float HalfOf(uint32_t pair, uint32_t which) {
  const auto bits = static_cast<uint16_t>(which == 0 ? pair : pair >> 16);
  return kBf16 ? BF16ToFloat(bits) : F16ToFloat(bits);
}

// Whether one of two 16-bit numbers is not finite.
template <bool kBf16>
SIMT_DEVICE bool HasBad(uint32_t pair) {
  constexpr uint32_t kExponent = kBf16 ? 0x7F80u : 0x7C00u;
  return (pair & kExponent) == kExponent || (pair >> 16 & kExponent) == kExponent;
}

// What a thread knows of its tokens: rows lane/4 and lane/4 + 8 of each of kTiles tiles.
template <uint32_t kTiles>
struct MmaTokens {
  float norm[kTiles][2] = {};  // |v|^2 or |v|_1
  uint32_t bad = 0;            // bit 2 * tile + half
  float sum[kTiles][2] = {}, mass[kTiles][2] = {};
};

// Reads the fragments of one view's staged tokens. kKeep: into `fragments`; kNorm: and their norms.
template <uint32_t kD, uint32_t kTiles, bool kBf16, bool kNorm, bool kKeep>
SIMT_DEVICE void ReadFragments(const std::byte* staged, bool magnitude,
                               uint32_t (*fragments)[kD / 16][4], MmaTokens<kTiles>& tokens) {
  const uint32_t lane = simt::ThreadX() % 32, warp = simt::ThreadX() / 32;
  SIMT_UNROLL
  for (uint32_t m = 0; m < kTiles; ++m) {
    SIMT_UNROLL
    for (uint32_t k = 0; k < kD / 16; ++k) {
      const uint32_t row = (warp * kTiles + m) * 16 + lane % 16;
      uint32_t r[4];
      simt::LdMatrix<4>(r, staged + row * MmaPitch(kD) + k * 32 + lane / 16 * 16);
      SIMT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        tokens.bad |= (HasBad<kBf16>(r[i]) ? 1u : 0u) << (2 * m + i % 2);
        if constexpr (kKeep) fragments[m][k][i] = r[i];
        if constexpr (kNorm) {
          const float low = HalfOf<kBf16>(r[i], 0), high = HalfOf<kBf16>(r[i], 1);
          float& norm = tokens.norm[m][i % 2];
          if (magnitude) {
            norm += (low < 0 ? -low : low) + (high < 0 ? -high : high);
          } else {
            norm = simt::Fma(low, low, simt::Fma(high, high, norm));
          }
        }
      }
    }
  }
}

// Joins what the four lanes of a row know.
template <uint32_t kTiles>
SIMT_DEVICE void JoinLanes(MmaTokens<kTiles>& tokens) {
  SIMT_UNROLL
  for (uint32_t step = 1; step < 4; step *= 2) {
    tokens.bad |= simt::ShuffleXor(simt::kAllLanes, tokens.bad, step);
    SIMT_UNROLL
    for (uint32_t i = 0; i < 2 * kTiles; ++i) {
      float& norm = tokens.norm[i / 2][i % 2];
      norm += simt::ShuffleXor(simt::kAllLanes, norm, step);
    }
  }
}

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

// Grid: x blocks of tokens, y KV heads, z items.
template <ScoreTerm kTerm, uint32_t kD, bool kBf16>
SIMT_KERNEL void SIMT_BOUNDS(kMmaThreads, 2) ScoreMmaKernel(const ScoreItem* items) {
  constexpr bool kOutputs = UsesOutputs(kTerm);
  constexpr MmaShape kShape = MmaShapeOf(kD);
  constexpr uint32_t kTiles = kShape.tiles, kSteps = kD / 16, kPitch = MmaPitch(kD);
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY(), block_first = simt::BlockX() * kShape.block_tokens;
  if (kv_head >= query.k.heads || block_first >= query.tokens) return;
  const uint32_t left = query.tokens - block_first;
  const uint32_t count = left < kShape.block_tokens ? left : kShape.block_tokens;
  const MmaShared<kD> shared = ShareMma<kD>(kOutputs);
  const uint32_t lane = simt::ThreadX() % 32, warp = simt::ThreadX() / 32;

  // K and V: staged, read into registers, and their place given to the query rows.
  std::byte* const staged_v = shared.rows + size_t{kOutputs ? kShape.block_tokens : 0} * kPitch;
  uint32_t k_fragments[kTiles][kSteps][4];
  uint32_t v_fragments[kOutputs ? kTiles : 1][kSteps][4];
  MmaTokens<kTiles> tokens;
  StageTokens<kD>(query.k, item.wide.k != 0, kv_head, block_first, count, shared.rows);
  if constexpr (kOutputs)
    StageTokens<kD>(query.v, item.wide.v != 0, kv_head, block_first, count, staged_v);
  simt::AsyncCommit();
  simt::AsyncWait<0>();
  simt::SyncThreads();
  ReadFragments<kD, kTiles, kBf16, false, true>(shared.rows, false, k_fragments, tokens);
  if constexpr (kOutputs) {
    ReadFragments<kD, kTiles, kBf16, true, true>(staged_v, false, v_fragments, tokens);
  } else if (query.reads_values != 0) {  // only their norms
    simt::SyncThreads();
    StageTokens<kD>(query.v, item.wide.v != 0, kv_head, block_first, count, shared.rows);
    simt::AsyncCommit();
    simt::AsyncWait<0>();
    simt::SyncThreads();
    ReadFragments<kD, kTiles, kBf16, true, false>(
        shared.rows, item.weight == ValueWeight::kMagnitude, v_fragments, tokens);
  }
  JoinLanes(tokens);
  for (uint32_t i = simt::ThreadX(); i < kMmaWarps * kTiles * 16; i += kMmaThreads) {
    shared.direct[i] = 0;
  }
  simt::SyncThreads();

  const MmaWork work{&item, kv_head, block_first + warp * kTiles * 16};
  MmaList list{warp * kMmaPairs, 0};
  const uint32_t direct = warp * kTiles * 16;
  const auto last = static_cast<int32_t>(work.first + kTiles * 16);

  StageTile<kD, kOutputs>(item, kv_head, 0, 0, shared);
  for (uint32_t unit0 = 0, buffer = 0; unit0 < query.unit_count;
       unit0 += kShape.query_rows, buffer ^= 1) {
    StageTile<kD, kOutputs>(item, kv_head, unit0 + kShape.query_rows, buffer ^ 1, shared);
    simt::AsyncWait<1>();
    simt::SyncThreads();
    const std::byte* const q_rows = shared.rows + size_t{buffer} * kShape.query_rows * kPitch;
    const std::byte* const o_rows = q_rows + size_t{2} * kShape.query_rows * kPitch;
    const uint32_t rows_left = query.unit_count - unit0;
    const uint32_t rows = rows_left < kShape.query_rows ? rows_left : kShape.query_rows;
    for (uint32_t n = 0; n < rows; n += 8) {
      float z[kTiles][4] = {}, t[kTiles][4] = {};
      SIMT_UNROLL
      for (uint32_t k = 0; k < kSteps; k += 2) {
        const size_t at = (n + lane % 8) * kPitch + k * 32 + lane / 8 * 16;
        uint32_t b[4];
        simt::LdMatrix<4>(b, q_rows + at);
        SIMT_UNROLL
        for (uint32_t m = 0; m < kTiles; ++m) {
          Multiply<kBf16>(z[m], k_fragments[m][k], b[0], b[1]);
          Multiply<kBf16>(z[m], k_fragments[m][k + 1], b[2], b[3]);
        }
        if constexpr (kOutputs) {
          simt::LdMatrix<4>(b, o_rows + at);
          SIMT_UNROLL
          for (uint32_t m = 0; m < kTiles; ++m) {
            Multiply<kBf16>(t[m], v_fragments[m][k], b[0], b[1]);
            Multiply<kBf16>(t[m], v_fragments[m][k + 1], b[2], b[3]);
          }
        }
      }
      const uint32_t column0 = n + lane % 4 * 2;
      const MmaColumn columns[2] = {shared.columns.At(buffer, column0),
                                    shared.columns.At(buffer, column0 + 1)};
      const bool all = tokens.bad == 0 && columns[0].limit >= last && columns[1].limit >= last &&
                       columns[0].first <= static_cast<int32_t>(work.first) &&
                       columns[1].first <= static_cast<int32_t>(work.first);
      const bool masked = simt::Ballot(simt::kAllLanes, !all) != 0;
      uint32_t bits = 0;
      SIMT_UNROLL
      for (uint32_t m = 0; m < kTiles; ++m) {
        SIMT_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t half = e / 2;
          const auto token = static_cast<int32_t>(work.first + m * 16 + lane / 4 + half * 8);
          const bool visible =
              !masked || ((tokens.bad >> (2 * m + half) & 1) == 0 &&
                          token >= columns[e % 2].first && token < columns[e % 2].limit);
          const MmaTerm term = TermOf<kTerm>(item.rule, columns[e % 2], visible,
                                             tokens.norm[m][half], z[m][e], t[m][e]);
          tokens.sum[m][half] += term.term;
          if constexpr (kTerm != ScoreTerm::kMass) tokens.mass[m][half] += term.weight;
          bits |= (term.listed ? 1u : 0u) << (m * 4 + e);
        }
      }
      if constexpr (kOutputs) {
        if (simt::Ballot(simt::kAllLanes, bits != 0) != 0) {
          ListPairs<kTerm>(work, shared, columns, z, bits, unit0 + column0, direct, &list);
        }
      }
    }
    simt::SyncThreads();
  }
  simt::AsyncWait<0>();
  if constexpr (kOutputs) {
    AddListedPairs<kTerm>(work, shared.pairs, list.at, list.count, shared.direct, direct);
  }

  SIMT_UNROLL
  for (uint32_t m = 0; m < kTiles; ++m) {
    SIMT_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      float sum = tokens.sum[m][half], mass = tokens.mass[m][half];
      SIMT_UNROLL
      for (uint32_t step = 1; step < 4; step *= 2) {  // the four lanes of a row: other queries
        sum += simt::ShuffleXor(simt::kAllLanes, sum, step);
        mass += simt::ShuffleXor(simt::kAllLanes, mass, step);
      }
      const uint32_t place = m * 16 + lane / 4 + half * 8;
      const uint32_t token = work.first + place;
      if (lane % 4 != 0 || token >= query.tokens) continue;
      if constexpr (kTerm == ScoreTerm::kMass) mass = sum;
      if constexpr (kOutputs) sum += shared.direct[direct + place];
      if (item.weight != ValueWeight::kNone) sum *= tokens.norm[m][half];
      const uint64_t at = uint64_t{kv_head} * query.tokens + token;
      if (item.first_batch == 0) {
        sum += simt::Load(item.scores + at);
        mass += simt::Load(item.mass + at);
      }
      if (item.last_batch != 0 && item.mean != 0) {
        sum = simt::DivideApprox(sum, static_cast<float>(query.group));
      }
      if ((tokens.bad >> (2 * m + half) & 1) != 0) sum = simt::BitsFloat(0x7FC00000u);
      simt::Store(item.scores + at, sum);
      simt::Store(item.mass + at, mass);
    }
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_CUH_
