// Importance of every cached row, per KV head.
//
// Notation (one sequence, one layer): query head h reads KV head g = h / (Hq/Hk); window row i sees
// cached row p when p < limit[i] (and not before the sliding window); z = scale * q.k, A = exp(z -
// lse) where visible, else 0; o = sum A v. Softcap, ALiBi and learned sinks change z, A and lse as
// attention.h says.
//
//   kAttention  S_h[p] = sum_i A_ip                                 (H2O, SnapKV, TOVA)
//   kObc*,kDrop S_h[p] = sum_i A_ip^2 * | alpha v_p + beta_ip (v_p - o_i) |^2
//     kObcValue alpha 1, beta 0      kObcKey   alpha 0, beta z      kObcJoint alpha 1, beta z
//     kDrop     alpha 0, beta 1/(1-A): exact change of the output when p is deleted; a window row
//     that
//               sees one token only adds nothing; 1-A = max(-expm1(z - lse), 1e-6)
//     (OBCache, arXiv 2510.07651, value / key / joint saliency; DropKV, CAOTE for exact deletion)
//   kVatp       S_h[p] = (sum_i A_ip) * |v_p|_1                      (VATP)
//   kCritical   S_g[p] = a = (1 / (W' G)) sum_h sum_i A_ip, and for a second stage (a + epsilon) n
//   with
//     n_g[p] = (1 / G) sum_h |W_O[:, head h] v_p|_1                  (CriticalKV)
//   kKeyNorm    S[p] = -|k_p|_2                                     (Knorm)
//   kKeyDiff    S[p] = -k_p.m / max(|k_p| |m|, 1e-8), m = mean of k / max(|k|, 1e-12)   (KeyDiff)
//   kLagKv      rows behind the sinks in partitions of `lag`; partition j is measured with j + 1,
//   for
//     K and for V: per channel y = (x - min) / (max - min) of j + 1 (0 where they are equal),
//     deviation of y over the channels, softmax over the partition; S = rank of the average of both
//     inside the partition (worst 0; equal: the lower row is better) / lag. Sinks, the last whole
//     partition and the rows behind it have no reference: S = 1. Fewer than two partitions: S[p] =
//     p (LagKV)
//   kExpectedAttention  S_g[p] = (mean over h of softmax_p l_h[p] + epsilon) |v_p|_2, rows behind
//   the
//     sinks only (sinks have 0); l_h = scale (R mu).k + (scale^2 / 2) k^T (R cov R^T) k, mu and cov
//     of the queries before RoPE, R the mean of the rotations for the next `future` positions
//     (Expected Attention)
//   kRecency    S[p] = p                                            (StreamingLLM)
//   kRandom     S_g[p] = (x >> 40) / 2^24, x = SplitMix64(random_key, ((layer*Hk + g) << 32) + p)
//
// Then: reduce over the query heads of a KV head, then pool over rows [0, pool_end).
//
// Guarantees. Scores are float32, sums run in a fixed order: equal inputs give equal bits for any
// tile, lane, thread count, neighbour or repeat within one build and backend; rows with equal K, V
// and visibility get equal scores. A row with a non-finite element of K (or of V, when the scorer
// reads V) is bad: invisible, its score is NaN, and it changes no other score. A window row of a
// query head with a non-finite query or (given) O element, a non-finite LSE, slope or sink, or that
// sees nothing, is left out. Rows past N, padding before first_slot and query rows outside the
// window are never read.
#ifndef KVTRIAGE_KERNELS_SCORE_H_
#define KVTRIAGE_KERNELS_SCORE_H_

#include <cstdint>
#include <vector>

#include "kvtriage/kernels/attention.h"
#include "kvtriage/kernels/rotate.h"

namespace kvtriage {

enum class Scorer : uint8_t {
  kAttention,
  kObcValue,
  kObcKey,
  kObcJoint,
  kDrop,
  kVatp,
  kCritical,
  kKeyNorm,
  kKeyDiff,
  kLagKv,
  kExpectedAttention,
  kRecency,
  kRandom
};

// Over the query heads of one KV head. kPre averages A, z and o over the group first and makes one
// score from them; a row left out for one query head is then left out for the group.
enum class Reduce : uint8_t { kSum, kMean, kMax, kPre };

// Stride 1, output as long as the input. kAvg divides by the kernel and counts padding zeros, kMax
// pads with -Inf; a NaN counts as 0 (kAvg) or -Inf (kMax) for its neighbours and stays NaN in its
// place.
enum class Pool : uint8_t { kNone, kAvg, kMax };

struct ScoreSpec {
  Scorer scorer = Scorer::kAttention;
  Reduce reduce = Reduce::kSum;  // kMean with kCritical, kExpectedAttention
  Pool pool = Pool::kNone;
  uint32_t pool_kernel = 1;  // odd, 1..255
  uint64_t random_key = 0;   // kRandom
  uint32_t lag = 0;          // kLagKv, >= 1
  uint32_t future = 0;       // kExpectedAttention, >= 1
  double epsilon = 0;        // kCritical, kExpectedAttention; finite and >= 0
  double first_stage = 0;    // kCritical, 0..1; read by selection only (select.h)

  friend bool operator==(const ScoreSpec&, const ScoreSpec&) = default;
};

// Whether the scorer reads V (so a non-finite V makes a row bad), and whether it needs the logits z
// and outputs o, not only A.
bool ReadsValues(Scorer scorer);
bool NeedsOutputs(Scorer scorer);

// Whether the scorer votes by attention of query rows (so window and pool apply).
bool UsesQueries(Scorer scorer);

struct ScoreRequest {
  LayerRows layer;
  AttentionInput input;
  uint32_t window = 0;  // W': the newest `window` of the input's rows vote; unused without queries
  uint32_t pool_end = 0;     // pooling covers rows [0, pool_end); the rest keep their raw score
  uint32_t layer_index = 0;  // kRandom: `layer` above
  ScoreSpec spec;
  uint32_t sinks = 0;  // kLagKv, kExpectedAttention: first rows that take no part
  // One per list, where lists have recent windows of their own; empty: `pool_end` holds for all.
  std::vector<uint32_t> pool_ends;
  // kExpectedAttention: rotary data of the layer (null: nothing turns), position of the next token.
  const Rope* rope = nullptr;
  uint64_t next_position = 0;
  // The rows are a part of a longer sum: a KV head without a usable one gets zeros and
  // `usable_rows` 0 instead of NO_USABLE_ROW.
  bool partial = false;
};

// Rows at the end that kLagKv has no reference for: the last whole partition and what is behind it;
// 0 when there are less than two.
uint32_t LagTail(uint32_t rows, uint32_t sinks, uint32_t lag);

struct ScoreResult {
  uint32_t lists = 0;         // Hk; 1 when the input is one row summed over all heads
  std::vector<float> scores;  // [lists, N], larger means keep
  // [lists, N], kCritical only: what the second stage of selection ranks by. NaN where scores are.
  std::vector<float> second_scores;
  // Sum of A over the window and the group's query heads, before pooling: [lists, N]; empty without
  // attention. Kept share of it = retained mass.
  std::vector<float> mass;
  // (query head, window row) pairs that voted, per list; 0 when unknown (column sums).
  std::vector<uint32_t> usable_rows;
  uint32_t nonfinite_tokens = 0;  // bad (KV head, row) pairs, and NaN in ready-made column sums
  uint32_t skipped_rows = 0;      // (query head, window row) pairs left out
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_SCORE_H_
