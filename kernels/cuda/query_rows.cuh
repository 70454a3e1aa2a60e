// Gathers query rows: widens them to float32, turns those from before RoPE, finds what each may see
// and leaves out those that may not vote (kvtriage/kernels/score.h). A warp takes one unit.
#ifndef KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_CUH_
#define KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/logit_rule.cuh"
#include "kernels/cuda/query_rows_launch.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/sine_cosine.cuh"

namespace kvtriage {

// By a whole warp: whether all elements of a row are finite.
SIMT_DEVICE bool RowIsGood(const DeviceView& view, uint32_t head, uint64_t row) {
  const std::byte* const at = RowAt(view.rows, row) + head * view.head_stride;
  const float scale = RowScaleOf(view, head, row);
  bool good = true;
  for (uint32_t e = simt::ThreadX() % 32; e < view.row_elems; e += 32) {
    good = good && IsFinite(LoadWide(at + e * view.rows.elem_stride, view.dtype) * scale);
  }
  return simt::Ballot(simt::kAllLanes, !good) == 0;
}

// By a whole warp: how many good tokens lie in [first, limit), counted up to two.
SIMT_DEVICE uint32_t SeesTokens(const QueryItem& item, uint32_t kv_head, int32_t first,
                                int32_t limit) {
  uint32_t seen = 0;
  for (int32_t p = first; p < limit && seen < 2; ++p) {
    const auto row = static_cast<uint64_t>(p);
    const bool good = (item.reads_keys == 0 || RowIsGood(item.k, kv_head, row)) &&
                      (item.reads_values == 0 || RowIsGood(item.v, kv_head, row));
    seen += good ? 1 : 0;
  }
  return seen;
}

SIMT_DEVICE int32_t LimitOfRow(const QueryItem& item, uint32_t window_row) {
  const auto tokens = static_cast<int64_t>(item.tokens);
  const int64_t limit =
      item.limits != nullptr
          ? simt::Load(item.limits + item.first_row + window_row)
          : tokens - static_cast<int64_t>(item.window_rows) + static_cast<int64_t>(window_row) + 1;
  return static_cast<int32_t>(limit < 0 ? 0 : limit > tokens ? tokens : limit);
}

// By a whole warp: copies one row as float32 (to nowhere: just looks at it); false when an element
// is not finite.
SIMT_DEVICE bool CopyRow(const DeviceTensor& tensor, uint32_t row, uint32_t head, uint32_t elems,
                         float* out) {
  bool good = true;
  for (uint32_t e = simt::ThreadX() % 32; e < elems; e += 32) {
    const float x = TensorAt(tensor, row, head, e);
    good = good && IsFinite(x);
    if (out != nullptr) simt::Store(out + e, x);
  }
  return simt::Ballot(simt::kAllLanes, !good) == 0;
}

// By a whole warp, which has just written the row.
SIMT_DEVICE void TurnQuery(const DeviceQueryRotation& rotation, uint32_t tensor_row, float* q) {
  if (rotation.pairs == 0) return;
  simt::SyncWarp(simt::kAllLanes);
  for (uint32_t pair = simt::ThreadX() % 32; pair < rotation.pairs; pair += 32) {
    const uint32_t plane =
        (pair >= rotation.section_ends[0] ? 1 : 0) + (pair >= rotation.section_ends[1] ? 1 : 0);
    const int64_t position =
        rotation.positions == nullptr
            ? rotation.first + static_cast<int64_t>(tensor_row)
            : simt::Load(rotation.positions + plane * rotation.stride + tensor_row);
    double sine, cosine;
    SineCosine(static_cast<double>(position) * simt::Load(rotation.speeds + pair), &sine, &cosine);
    const auto c = static_cast<float>(cosine), s = static_cast<float>(sine);
    float* const a_at = q + rotation.offset + (rotation.half != 0 ? pair : 2 * pair);
    float* const b_at = a_at + (rotation.half != 0 ? rotation.pairs : 1);
    const float a = simt::Load(a_at), b = simt::Load(b_at);
    simt::Store(a_at, (simt::MulRounded(a, c) - simt::MulRounded(b, s)) * rotation.factor);
    simt::Store(b_at, (simt::MulRounded(b, c) + simt::MulRounded(a, s)) * rotation.factor);
  }
}

// By a whole warp: means of O over the rows of a unit (of one row: itself), copied unless `out` is
// null, and their square.
SIMT_DEVICE float GatherOutput(const QueryItem& item, uint32_t tensor_row, uint32_t head0,
                               float* out) {
  const uint32_t heads = item.rows_per_unit();
  double square = 0;
  for (uint32_t e = simt::ThreadX() % 32; e < item.o_elems; e += 32) {
    double sum = 0;
    for (uint32_t h = 0; h < heads; ++h) sum += TensorAt(item.o, tensor_row, head0 + h, e);
    const auto mean = static_cast<float>(sum / heads);
    if (out != nullptr) simt::Store(out + e, mean);
    square += static_cast<double>(mean) * mean;
  }
  SIMT_UNROLL
  for (uint32_t step = 16; step > 0; step /= 2) {
    square += simt::ShuffleXor(simt::kAllLanes, square, step);
  }
  return static_cast<float>(square);
}

// By a whole warp: everything but O of one row. False when it may not vote.
SIMT_DEVICE bool GatherRow(const QueryItem& item, uint32_t head, float* q, QueryRow* row) {
  row->head = head;
  bool votes = row->limit > row->first;
  if (item.slopes.base != nullptr) {
    row->slope2 = static_cast<float>(TensorAt(item.slopes, 0, head, 0) * kLog2E);
    votes = votes && IsFinite(row->slope2);
  }
  if (item.sinks.base != nullptr) {
    row->sink2 = TensorAt(item.sinks, 0, head, 0) * kLog2E;
    const double sink2 = row->sink2;
    votes = votes && sink2 == sink2 && sink2 <= 1e300;  // -Inf is no sink
  }
  if (item.lse.base != nullptr) {
    const double lse = TensorAt(item.lse, row->tensor_row, head, 0);
    const double lse2 = item.lse_base2 != 0 ? lse : lse * kLog2E;
    votes = votes && IsFinite(static_cast<float>(lse));
    row->lse2 = static_cast<float>(lse2);
    row->lse2_low = static_cast<float>(lse2 - static_cast<double>(row->lse2));
  }
  if (item.q.base != nullptr) {
    votes = CopyRow(item.q, row->tensor_row, head, item.k.row_elems, q) && votes;
    if (q != nullptr) TurnQuery(item.rotation, row->tensor_row, q);
  }
  return votes;
}

// By a whole warp: whether O, where it is given, is finite for all rows of a unit.
SIMT_DEVICE bool OutputsAreGood(const QueryItem& item, uint32_t tensor_row, uint32_t head) {
  bool good = true;
  for (uint32_t e = simt::ThreadX() % 32; e < item.o_elems; e += 32) {
    good = good && IsFinite(TensorAt(item.o, tensor_row, head, e));
  }
  return simt::Ballot(simt::kAllLanes, !good) == 0;
}

// Grid: x units (a warp each), y KV heads, z items.
SIMT_KERNEL void SIMT_BOUNDS(kGatherThreads, 4)
    GatherRowsKernel(const std::byte* items, size_t stride) {
  const auto& item = *reinterpret_cast<const QueryItem*>(items + simt::BlockZ() * stride);
  const uint32_t kv_head = simt::BlockY(), lane = simt::ThreadX() % 32;
  const uint32_t unit = simt::BlockX() * (kGatherThreads / 32) + simt::ThreadX() / 32;
  if (kv_head >= item.k.heads || unit >= item.unit_count) return;
  const uint32_t number = item.unit_begin + unit, per_unit = item.rows_per_unit();
  const uint32_t window_row = item.averaged != 0 ? number : number % item.window_rows;
  const uint32_t head0 =
      kv_head * item.group + (item.averaged != 0 ? 0 : number / item.window_rows);
  const int32_t limit = LimitOfRow(item, window_row);
  const int32_t start = limit - static_cast<int32_t>(item.sliding);
  const int32_t first = item.sliding == 0 || start < 0 ? 0 : start;
  const uint32_t sees = SeesTokens(item, kv_head, first, limit);
  const uint32_t tensor_row = item.first_row + window_row;
  bool votes = sees > 0;
  const uint64_t row0 = uint64_t{kv_head} * item.row_count() + uint64_t{unit} * per_unit;
  for (uint32_t r = 0; r < per_unit; ++r) {
    QueryRow row{.sink2 = simt::BitsFloat(0xFF800000u),
                 .first = first,
                 .limit = limit,
                 .lse2 = 0,
                 .lse2_low = 0,
                 .slope2 = 0,
                 .output_square = 0,
                 .drop_weight = sees > 1 ? 1.0f : 0.0f,
                 .rest = 1,
                 .dominant = -1,
                 .head = 0,
                 .tensor_row = tensor_row};
    float* const q = item.q_rows == nullptr ? nullptr : item.q_rows + (row0 + r) * item.k.row_elems;
    votes = GatherRow(item, head0 + r, q, &row) && votes;
    if (item.o.base != nullptr) votes = OutputsAreGood(item, tensor_row, head0 + r) && votes;
    if (lane == 0) item.rows[row0 + r] = row;
  }
  float square = 0;
  if (item.o.base != nullptr) {
    const uint64_t at = uint64_t{kv_head} * item.unit_count + unit;
    square = GatherOutput(item, tensor_row, head0,
                          item.o_rows == nullptr ? nullptr : item.o_rows + at * item.o_elems);
  }
  if (lane != 0) return;
  for (uint32_t r = 0; r < per_unit; ++r) {
    item.rows[row0 + r].output_square = square;
    if (!votes) item.rows[row0 + r].limit = 0;
  }
  simt::AtomicAdd((votes ? item.usable : item.skipped) + kv_head, per_unit);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_CUH_
