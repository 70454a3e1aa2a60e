// Second pass: the scores of a tile of tokens from all rows of a batch, for any types, strides and
// forms of input. A thread owns a token and every so many rows, so a score is finished inside its
// block: no atomics, no sums between blocks, the same bits for any grid.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_TOKENS_CUH_
#define KVTRIAGE_KERNELS_CUDA_SCORE_TOKENS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_terms.cuh"
#include "kernels/cuda/score_tiles.cuh"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/token_tile.cuh"

namespace kvtriage {

inline constexpr uint32_t kRowsAtOnce = 8;

// What a thread works on.
struct TokenWork {
  const ScoreItem* item;
  const TileShared* shared;
  uint32_t kv_head, token;  // `token` of the sequence
  uint32_t place;           // in the tile
  bool sees;                // the token is in the sequence and not bad
  TokenValue value;
};

struct TokenSums {
  float segment, mass;
};

SIMT_DEVICE RowOutput OutputOf(const TokenWork& work, const QueryRow& row, uint32_t unit) {
  const QueryItem& query = work.item->rows;
  const uint64_t at = uint64_t{work.kv_head} * query.unit_count + unit;
  return {query.o_rows + at * query.o_elems, row.output_square};
}

// Rows [row0, row0 + count) of the head, count <= kRowsAtOnce, one unit each.
template <ScoreTerm kTerm>
SIMT_DEVICE void AddRows(const TokenWork& work, uint32_t row0, uint32_t count, TokenSums* sums) {
  const ScoreItem& item = *work.item;
  const QueryItem& query = item.rows;
  const uint64_t at = uint64_t{work.kv_head} * query.row_count() + row0;
  const QueryRow* const rows = query.rows + at;
  float products[kRowsAtOnce] = {}, dots[kRowsAtOnce] = {};
  bool some = false;
  for (uint32_t r = 0; r < count; ++r) some = some || Sees(rows[r], work.token);
  if (!some || !work.sees) return;
  const uint32_t dk = query.k.row_elems;
  MultiplyRows(work.shared->keys, work.place, dk, query.q_rows + at * dk, count, products);
  if constexpr (UsesOutputs(kTerm)) {
    const float* const outputs = OutputOf(work, rows[0], row0).elems;
    MultiplyRows(work.shared->values, work.place, query.o_elems, outputs, count, dots);
  }
  SIMT_UNROLL
  for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
    if (r >= count || !Sees(rows[r], work.token)) continue;
    const QueryRow& row = rows[r];
    float z = products[r] * item.rule.scale, weight;
    if (item.rule.plain) {
      weight = PairWeight(item.rule, row, work.token, products[r]);
    } else {
      const PairLogit pair = BentLogit(item.rule, row, work.token, products[r]);
      weight = simt::Exp2Approx(pair.logit2 - row.lse2);
      z = pair.z;
    }
    if constexpr (kTerm != ScoreTerm::kMass) sums->mass += weight;
    if constexpr (UsesOutputs(kTerm)) {
      if (row.dominant == static_cast<int32_t>(work.token)) {
        const float* const rest_output = item.rest_rows + (at + r) * query.o_elems;
        sums->segment += DominantTerm<kTerm>(row, rest_output, work.value, z);
        continue;
      }
    }
    float rest = 1;
    if constexpr (kTerm == ScoreTerm::kDrop) {
      rest = OneMinusWeight(item.rule, row, work.token, products[r], weight);
    }
    RowOutput output{};
    if constexpr (UsesOutputs(kTerm)) output = OutputOf(work, row, row0 + r);
    sums->segment =
        AddTerm<kTerm>(row, work.value, output, dots[r], weight, z, rest, sums->segment);
  }
}

// A and z of one row with the thread's token: given, or from a product.
SIMT_DEVICE void VoteOfRow(const TokenWork& work, const QueryRow& row, float product, bool reads_z,
                           float* weight, float* z) {
  const ScoreItem& item = *work.item;
  if (item.a.base != nullptr) {
    *weight = TensorAt(item.a, row.tensor_row, row.head, work.token);
    *z = reads_z ? TensorAt(item.z, row.tensor_row, row.head, work.token) : 0.0f;
  } else if (item.rule.plain) {
    *weight = PairWeight(item.rule, row, work.token, product);
    *z = product * item.rule.scale;
  } else {
    const PairLogit pair = BentLogit(item.rule, row, work.token, product);
    *weight = simt::Exp2Approx(pair.logit2 - row.lse2);
    *z = pair.z;
  }
}

// One unit whose weights and logits are given, or averaged over the rows of a group.
template <ScoreTerm kTerm>
SIMT_DEVICE void AddVote(const TokenWork& work, uint32_t unit, TokenSums* sums) {
  constexpr bool kReadsZ = kTerm == ScoreTerm::kKey || kTerm == ScoreTerm::kJoint;
  const QueryItem& query = work.item->rows;
  const uint32_t per_unit = query.rows_per_unit(), dk = query.k.row_elems;
  const uint64_t at = uint64_t{work.kv_head} * query.row_count() + uint64_t{unit} * per_unit;
  const QueryRow* const rows = query.rows + at;
  if (!work.sees || !Sees(rows[0], work.token)) return;
  const float share = 1.0f / static_cast<float>(per_unit);
  float weight = 0, z = 0;
  for (uint32_t r0 = 0; r0 < per_unit; r0 += kRowsAtOnce) {
    const uint32_t count = per_unit - r0 < kRowsAtOnce ? per_unit - r0 : kRowsAtOnce;
    float products[kRowsAtOnce] = {};
    if (work.item->a.base == nullptr) {
      MultiplyRows(work.shared->keys, work.place, dk, query.q_rows + (at + r0) * dk, count,
                   products);
    }
    SIMT_UNROLL
    for (uint32_t r = 0; r < kRowsAtOnce; ++r) {
      if (r >= count) break;
      float row_weight, row_z;
      VoteOfRow(work, rows[r0 + r], products[r], kReadsZ, &row_weight, &row_z);
      weight += row_weight * share;
      z += row_z * share;
    }
  }
  float dots[1] = {};
  RowOutput output{};
  if constexpr (UsesOutputs(kTerm)) {
    output = OutputOf(work, rows[0], unit);
    MultiplyRows(work.shared->values, work.place, query.o_elems, output.elems, 1, dots);
  }
  if constexpr (kTerm != ScoreTerm::kMass) sums->mass += weight;
  const float rest = 1.0f - weight < 1e-6f ? 1e-6f : 1.0f - weight;
  sums->segment =
      AddTerm<kTerm>(rows[0], work.value, output, dots[0], weight, z, rest, sums->segment);
}

// |v|^2 or |v|_1 of the thread's token.
SIMT_DEVICE float ValueNorm(const TokenWork& work, bool magnitude) {
  float even = 0, odd = 0;  // two chains, so that one need not wait for the other
  const uint32_t elems = work.value.elems;
  for (uint32_t e = 0; e < elems; e += 2) {
    const float v = work.shared->values[work.value.base + e];
    const float w = e + 1 < elems ? work.shared->values[work.value.base + e + 1] : 0.0f;
    even = magnitude ? even + (v < 0 ? -v : v) : simt::Fma(v, v, even);
    odd = magnitude ? odd + (w < 0 ? -w : w) : simt::Fma(w, w, odd);
  }
  return even + odd;
}

// Sum over the row groups of a block, in order; valid in the first group's threads. By all threads.
SIMT_DEVICE float SumOverGroups(const simt::Shared<float>& numbers, uint32_t tokens, float mine) {
  simt::SyncThreads();
  numbers[simt::ThreadX()] = mine;
  simt::SyncThreads();
  float sum = 0;
  if (simt::ThreadX() < tokens) {
    for (uint32_t at = simt::ThreadX(); at < kScoreThreads; at += tokens) sum += numbers[at];
  }
  return sum;
}

// What the first group's threads keep of their token.
struct TokenScore {
  float carry, score, mass;
};

// Adds a query head's sum, or (when the head goes on in the next batch) keeps it.
template <ScoreTerm kTerm>
SIMT_DEVICE void CloseSegment(const ScoreItem& item, float norm, bool complete, float segment,
                              TokenScore* token) {
  token->carry += segment;
  if (!complete) return;
  float sum = token->carry;
  token->carry = 0;
  if constexpr (kTerm == ScoreTerm::kMass) token->mass += sum;
  if (item.weight != ValueWeight::kNone) sum *= norm;
  token->score = item.largest == 0 ? token->score + sum : sum > token->score ? sum : token->score;
}

SIMT_DEVICE TokenScore LoadScore(const ScoreItem& item, uint64_t at) {
  if (item.first_batch != 0) return {0, 0, 0};
  return {simt::Load(item.carry + at), simt::Load(item.scores + at), simt::Load(item.mass + at)};
}

SIMT_DEVICE void StoreScore(const ScoreItem& item, uint64_t at, bool bad, TokenScore token) {
  if (item.last_batch != 0) {
    if (item.mean != 0) token.score /= static_cast<float>(item.rows.group);
    if (bad) token.score = simt::BitsFloat(0x7FC00000u);
    token.mass *= static_cast<float>(item.rows.rows_per_unit());  // with PRE a sum of means
  } else {
    simt::Store(item.carry + at, token.carry);
  }
  simt::Store(item.scores + at, token.score);
  simt::Store(item.mass + at, token.mass);
}

// Grid: x tiles of tokens, y KV heads, z items.
template <ScoreTerm kTerm>
SIMT_KERNEL void SIMT_BOUNDS(kScoreThreads, 2) ScoreTokensKernel(const ScoreItem* items) {
  const ScoreItem& item = items[simt::BlockZ()];
  const QueryItem& query = item.rows;
  const uint32_t kv_head = simt::BlockY();
  const uint32_t elems =
      query.k.row_elems > query.v.row_elems ? query.k.row_elems : query.v.row_elems;
  const uint32_t tokens = TileTokens(elems), first = simt::BlockX() * tokens;
  if (kv_head >= query.k.heads || first >= query.tokens) return;
  const uint32_t count = query.tokens - first < tokens ? query.tokens - first : tokens;
  const TileShared shared = ShareTiles(query, tokens, query.reads_values != 0);
  LoadTokens(query, kv_head, first, count, tokens, shared);

  const uint32_t place = simt::ThreadX() % tokens, group = simt::ThreadX() / tokens;
  const uint32_t groups = kScoreThreads / tokens;
  TokenWork work{&item, &shared, kv_head, first + place, place, false, {}};
  work.sees = place < count && shared.bad[place] == 0;
  work.value = {&shared.values, place * TilePitch(query.v.row_elems), query.v.row_elems, 0};
  if (query.reads_values != 0) {
    work.value.square = ValueNorm(work, item.weight == ValueWeight::kMagnitude);
  }
  const uint64_t at = uint64_t{kv_head} * query.tokens + first + place;
  const bool keeps = group == 0 && place < count;
  TokenScore token = keeps ? LoadScore(item, at) : TokenScore{0, 0, 0};

  const bool votes = query.averaged != 0 || item.a.base != nullptr;
  for (uint32_t from = 0; from < query.unit_count;) {
    const uint32_t number = query.unit_begin + from;
    const uint32_t head_end = (number / query.window_rows + 1) * query.window_rows;
    const uint32_t end = head_end - query.unit_begin < query.unit_count
                             ? head_end - query.unit_begin
                             : query.unit_count;
    TokenSums sums{0, 0};
    if (votes) {
      for (uint32_t u = from + group; u < end; u += groups) AddVote<kTerm>(work, u, &sums);
    } else {
      for (uint32_t row = from + group * kRowsAtOnce; row < end; row += groups * kRowsAtOnce) {
        AddRows<kTerm>(work, row, end - row < kRowsAtOnce ? end - row : kRowsAtOnce, &sums);
      }
    }
    const float segment = SumOverGroups(shared.numbers, tokens, sums.segment);
    if constexpr (kTerm != ScoreTerm::kMass) {
      token.mass += SumOverGroups(shared.numbers, tokens, sums.mass);
    }
    const bool complete = query.unit_begin + end == head_end;
    CloseSegment<kTerm>(item, work.value.square, complete, segment, &token);
    from = end;
  }
  if (keeps) StoreScore(item, at, shared.bad[place] != 0, token);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_TOKENS_CUH_
