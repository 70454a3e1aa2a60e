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

#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_mma_pairs.cuh"
#include "kernels/cuda/score_mma_rows.cuh"
#include "kernels/cuda/score_mma_shape.h"
#include "kernels/cuda/simt.h"

namespace kvtriage {

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

// By all threads: until what all of them have staged lies in shared memory.
SIMT_DEVICE void WaitForStaged() {
  simt::AsyncCommit();
  simt::AsyncWait<0>();
  simt::SyncThreads();
}

// K and (where terms need it) V fragments of a warp's tokens.
template <uint32_t kD, bool kOutputs>
struct MmaFragments {
  static constexpr uint32_t kTiles = MmaShapeOf(kD).tiles;

  uint32_t k[kTiles][kD / 16][4];
  uint32_t v[kOutputs ? kTiles : 1][kD / 16][4];
};

// By all threads: K and V of a block's tokens are staged and read. Their place in shared memory is
// free behind it.
template <uint32_t kD, bool kBf16, bool kOutputs>
SIMT_DEVICE void LoadFragments(const ScoreItem& item, uint32_t kv_head, uint32_t first,
                               const MmaShared<kD>& shared, MmaFragments<kD, kOutputs>& fragments,
                               MmaTokens<MmaShapeOf(kD).tiles>& tokens) {
  constexpr MmaShape kShape = MmaShapeOf(kD);
  const QueryItem& query = item.rows;
  const uint32_t left = query.tokens - first;
  const uint32_t count = left < kShape.block_tokens ? left : kShape.block_tokens;
  std::byte* const staged_v =
      shared.rows + size_t{kOutputs ? kShape.block_tokens : 0} * MmaPitch(kD);
  StageTokens<kD>(query.k, item.wide.k != 0, kv_head, first, count, shared.rows);
  if constexpr (kOutputs) {
    StageTokens<kD>(query.v, item.wide.v != 0, kv_head, first, count, staged_v);
  }
  WaitForStaged();
  ReadFragments<kD, kShape.tiles, kBf16, false, true>(shared.rows, false, fragments.k, tokens);
  if constexpr (kOutputs) {
    ReadFragments<kD, kShape.tiles, kBf16, true, true>(staged_v, false, fragments.v, tokens);
  } else if (query.reads_values != 0) {  // only their norms
    simt::SyncThreads();
    StageTokens<kD>(query.v, item.wide.v != 0, kv_head, first, count, shared.rows);
    WaitForStaged();
    ReadFragments<kD, kShape.tiles, kBf16, true, false>(
        shared.rows, item.weight == ValueWeight::kMagnitude, fragments.v, tokens);
  }
  JoinLanes(tokens);
  for (uint32_t i = simt::ThreadX(); i < kShape.block_tokens; i += kMmaThreads) {
    shared.direct[i] = 0;
  }
  simt::SyncThreads();
}

// Products of the warp's tokens with query rows [n, n + 8) of a staged tile: z with Q, t with O.
template <uint32_t kD, bool kBf16, bool kOutputs>
SIMT_DEVICE void MultiplyColumns(const std::byte* q_rows, uint32_t n,
                                 const MmaFragments<kD, kOutputs>& fragments,
                                 float (&z)[MmaShapeOf(kD).tiles][4],
                                 float (&t)[MmaShapeOf(kD).tiles][4]) {
  constexpr uint32_t kTiles = MmaShapeOf(kD).tiles;
  const std::byte* const o_rows = q_rows + size_t{2} * MmaShapeOf(kD).query_rows * MmaPitch(kD);
  const uint32_t lane = simt::ThreadX() % 32;
  SIMT_UNROLL
  for (uint32_t k = 0; k < kD / 16; k += 2) {
    const size_t at = (n + lane % 8) * MmaPitch(kD) + k * 32 + lane / 8 * 16;
    uint32_t b[4];
    simt::LdMatrix<4>(b, q_rows + at);
    SIMT_UNROLL
    for (uint32_t m = 0; m < kTiles; ++m) {
      Multiply<kBf16>(z[m], fragments.k[m][k], b[0], b[1]);
      Multiply<kBf16>(z[m], fragments.k[m][k + 1], b[2], b[3]);
    }
    if constexpr (kOutputs) {
      simt::LdMatrix<4>(b, o_rows + at);
      SIMT_UNROLL
      for (uint32_t m = 0; m < kTiles; ++m) {
        Multiply<kBf16>(t[m], fragments.v[m][k], b[0], b[1]);
        Multiply<kBf16>(t[m], fragments.v[m][k + 1], b[2], b[3]);
      }
    }
  }
}

// Whether some lane's two columns do not see every one of the warp's tokens.
SIMT_DEVICE bool NeedsMask(const MmaColumn (&columns)[2], uint32_t first, uint32_t tokens,
                           uint32_t bad) {
  const auto begin = static_cast<int32_t>(first), end = static_cast<int32_t>(first + tokens);
  const bool all = bad == 0 && columns[0].limit >= end && columns[1].limit >= end &&
                   columns[0].first <= begin && columns[1].first <= begin;
  return simt::Ballot(simt::kAllLanes, !all) != 0;
}

// Adds the terms of eight columns to the sums of the warp's tokens. Returns which pairs have to be
// listed: bit 4 * tile + place in the accumulator.
template <ScoreTerm kTerm, uint32_t kTiles>
SIMT_DEVICE uint32_t AddColumns(const MmaWork& work, const MmaColumn (&columns)[2],
                                const float (&z)[kTiles][4], const float (&t)[kTiles][4],
                                MmaTokens<kTiles>& tokens) {
  const uint32_t lane = simt::ThreadX() % 32;
  const bool masked = NeedsMask(columns, work.first, kTiles * 16, tokens.bad);
  uint32_t bits = 0;
  SIMT_UNROLL
  for (uint32_t m = 0; m < kTiles; ++m) {
    SIMT_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t half = e / 2;
      const auto token = static_cast<int32_t>(work.first + m * 16 + lane / 4 + half * 8);
      const bool visible =
          !masked || ((tokens.bad >> (2 * m + half) & 1) == 0 && token >= columns[e % 2].first &&
                      token < columns[e % 2].limit);
      const MmaTerm term = TermOf<kTerm>(work.item->rule, columns[e % 2], visible,
                                         tokens.norm[m][half], z[m][e], t[m][e]);
      tokens.sum[m][half] += term.term;
      if constexpr (kTerm != ScoreTerm::kMass) tokens.mass[m][half] += term.weight;
      bits |= (term.listed ? 1u : 0u) << (m * 4 + e);
    }
  }
  return bits;
}

// One token's sums to its score; `direct`: of the pairs that were computed directly.
template <ScoreTerm kTerm>
SIMT_DEVICE void StoreToken(const ScoreItem& item, uint64_t at, bool bad, float norm, float direct,
                            float sum, float mass) {
  if constexpr (kTerm == ScoreTerm::kMass) mass = sum;
  sum += direct;
  if (item.weight != ValueWeight::kNone) sum *= norm;
  if (item.first_batch == 0) {
    sum += simt::Load(item.scores + at);
    mass += simt::Load(item.mass + at);
  }
  if (item.last_batch != 0 && item.mean != 0) {
    sum = simt::DivideApprox(sum, static_cast<float>(item.rows.group));
  }
  simt::Store(item.scores + at, bad ? simt::BitsFloat(0x7FC00000u) : sum);
  simt::Store(item.mass + at, mass);
}

template <ScoreTerm kTerm, uint32_t kTiles>
SIMT_DEVICE void StoreTokens(const MmaWork& work, const simt::Shared<float>& direct,
                             const MmaTokens<kTiles>& tokens) {
  const uint32_t lane = simt::ThreadX() % 32;
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
      const uint32_t place = m * 16 + lane / 4 + half * 8, token = work.first + place;
      if (lane % 4 != 0 || token >= work.item->rows.tokens) continue;
      StoreToken<kTerm>(*work.item, uint64_t{work.kv_head} * work.item->rows.tokens + token,
                        (tokens.bad >> (2 * m + half) & 1) != 0, tokens.norm[m][half],
                        direct[simt::ThreadX() / 32 * kTiles * 16 + place], sum, mass);
    }
  }
}

// Grid: x blocks of tokens, y KV heads, z items.
template <ScoreTerm kTerm, uint32_t kD, bool kBf16>
SIMT_KERNEL void SIMT_BOUNDS(kMmaThreads, 2) ScoreMmaKernel(const ScoreItem* items) {
  constexpr bool kOutputs = UsesOutputs(kTerm);
  constexpr MmaShape kShape = MmaShapeOf(kD);
  constexpr uint32_t kTiles = kShape.tiles;
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY(), block_first = simt::BlockX() * kShape.block_tokens;
  if (kv_head >= query.k.heads || block_first >= query.tokens) return;
  const MmaShared<kD> shared = ShareMma<kD>(kOutputs);
  const uint32_t lane = simt::ThreadX() % 32, warp = simt::ThreadX() / 32;
  MmaFragments<kD, kOutputs> fragments;
  MmaTokens<kTiles> tokens;
  LoadFragments<kD, kBf16>(item, kv_head, block_first, shared, fragments, tokens);
  const MmaWork work{&item, kv_head, block_first + warp * kTiles * 16};
  const uint32_t direct = warp * kTiles * 16;
  MmaList list{warp * kMmaPairs, 0};

  StageTile<kD, kOutputs>(item, kv_head, 0, 0, shared);
  for (uint32_t unit0 = 0, buffer = 0; unit0 < query.unit_count;
       unit0 += kShape.query_rows, buffer ^= 1) {
    StageTile<kD, kOutputs>(item, kv_head, unit0 + kShape.query_rows, buffer ^ 1, shared);
    simt::AsyncWait<1>();
    simt::SyncThreads();
    const std::byte* const q_rows = shared.rows + size_t{buffer} * kShape.query_rows * MmaPitch(kD);
    const uint32_t rows_left = query.unit_count - unit0;
    const uint32_t rows = rows_left < kShape.query_rows ? rows_left : kShape.query_rows;
    for (uint32_t n = 0; n < rows; n += 8) {
      float z[kTiles][4] = {}, t[kTiles][4] = {};
      MultiplyColumns<kD, kBf16>(q_rows, n, fragments, z, t);
      const uint32_t column = n + lane % 4 * 2;
      const MmaColumn columns[2] = {shared.columns.At(buffer, column),
                                    shared.columns.At(buffer, column + 1)};
      const uint32_t bits = AddColumns<kTerm>(work, columns, z, t, tokens);
      if constexpr (kOutputs) {
        if (simt::Ballot(simt::kAllLanes, bits != 0) != 0) {
          ListPairs<kTerm>(work, shared, columns, z, bits, unit0 + column, direct, &list);
        }
      }
    }
    simt::SyncThreads();
  }
  simt::AsyncWait<0>();
  if constexpr (kOutputs) {
    AddListedPairs<kTerm>(work, shared.pairs, list.at, list.count, shared.direct, direct);
  }
  StoreTokens<kTerm>(work, shared.direct, tokens);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_MMA_CUH_
