// What a request brings to score from or to measure on: the newest query rows of one sequence and
// layer in one of four forms. Shared by score.h and quality.h.
#ifndef KVTRIAGE_KERNELS_ATTENTION_H_
#define KVTRIAGE_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvtriage/kernels/rotate.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

enum class AttentionSource : uint8_t {
  kNone,         // no queries: recency, random
  kQuery,        // Q alone: row statistics (and O) come from a first pass over K (and V)
  kQueryOutput,  // Q + O + LSE: one pass
  kReady,        // A, Z, O
  kColumnSums,   // sum of A over the window
};

enum class LseBase : uint8_t { kE, k2 };

enum class HeadAxis : uint8_t {
  kQuery,   // sums [Hq, N]
  kKv,      // sums [Hk, N]
  kSummed,  // one row [1, N], already summed over all heads
};

// How queries from before RoPE turn into what the cached keys were multiplied with: row i of q
// turns by its position, exactly, and its turned channels are multiplied with the rope's attention
// factor.
struct QueryRotation {
  const Rope* rope = nullptr;  // null: the queries are from after RoPE
  // Position of row i: first + i, or positions[plane * stride + i].
  int64_t first = 0;
  const int32_t* positions = nullptr;
  size_t stride = 0;

  RowPosition At(size_t row) const {
    if (positions == nullptr) return AtPosition(first + static_cast<int64_t>(row));
    RowPosition at{};
    for (uint32_t plane = 0; plane < rope->planes(); ++plane) {
      at[plane] = positions[plane * stride + row];
    }
    return at;
  }
};

// Row i of every tensor (rows axis) is the query of cached row N - rows + i. Elements are widened
// to float32 on load; O is used after its own rounding.
struct AttentionInput {
  AttentionSource source = AttentionSource::kNone;
  float scale = 1.0f;  // softmax scale, finite and > 0; used with Q
  // Used with Q too. The raw logit z0 = scale * q.k enters the softmax as c * tanh(z0 / c), and the
  // key term as z0 * (1 - tanh(z0 / c)^2): the first-order effect of removing a key under the cap.
  float softcap = 0.0f;     // c, finite; 0 = off
  TensorView alibi_slopes;  // [1, Hq, 1]: slope * (p - (limit[i] - 1)) joins the softmax's logit
  // [1, Hq, 1], natural logits of a learned sink: e^sink joins the softmax of every row (kQuery). A
  // given LSE contains it already; there it only says that rows of A add up to less than 1.
  TensorView sink_logits;
  TensorView q;  // [rows, Hq, dk]
  QueryRotation rotation;
  TensorView o;    // [rows, Hq, dv]
  TensorView lse;  // [rows, Hq, 1]
  LseBase lse_base = LseBase::kE;
  TensorView a, z;  // [rows, Hq, N]
  TensorView sums;  // [1, Hq | Hk | 1, N]
  HeadAxis sums_axis = HeadAxis::kQuery;
  // Number of cached rows that each of the tensors' rows may see; empty = N - rows + i + 1. With
  // limits the rows may be queries whose own row is not in the cache.
  std::span<const int32_t> row_limits;
  // W_O as [hidden, Hq, dv], beside any source: the attention block's output is W_O times the
  // heads' outputs. For the one scorer that weighs V by it.
  TensorView output_projection;
  // Mean and covariance of each head's queries before RoPE, [1, Hq, dk] and [dk, Hq, dk], beside
  // any source: for the scorer that expects what comes.
  TensorView query_mean, query_covariance;
};

// K and V of one layer and the rows of one sequence in it.
struct LayerRows {
  KvView k;
  KvView v;  // base is null when nothing reads V
  SequenceRows sequence;
  uint32_t q_heads = 0;  // a multiple of k.layout.heads
  // > 0: window row i sees no row before limit[i] - sliding_window.
  uint32_t sliding_window = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_ATTENTION_H_
