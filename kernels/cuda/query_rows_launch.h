// Query rows on the device: how they lie there for the kernels that score and measure, and what
// the kernel that gathers them (query_rows.cuh) is started with.
#ifndef KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/core/host_device.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/device_view.h"

namespace kvtriage {

inline constexpr uint32_t kGatherThreads = 128;

// How queries from before RoPE turn (QueryRotation). pairs = 0: they do not.
struct DeviceQueryRotation {
  const double* speeds;  // [pairs]
  uint32_t pairs, offset;
  uint32_t half;             // 1: channel j pairs with j + R/2; 0: 2j with 2j + 1
  uint32_t section_ends[3];  // first pair that does not take its position from plane 0, 1, 2
  float factor;              // of the turned channels
  int64_t first;             // position of row i is first + i, or
  const int32_t* positions;  // positions[plane * stride + i]
  uint64_t stride;
};

// One row of a KV head's group. What it sees is empty (limit 0) when it may not vote.
struct QueryRow {
  double sink2;               // learned sink in base 2; -Inf: none
  int32_t first, limit;       // tokens that it sees by its place
  float lse2, lse2_low;       // log-sum-exp in base 2 = lse2 + lse2_low
  float slope2;               // ALiBi slope in base 2; 0: none
  float output_square;        // |o|^2
  float drop_weight;          // 0: sees one token only, so exact deletion is undefined; else 1
  float rest;                 // 1 - A of `dominant`
  int32_t dominant;           // token with clearly more than half of the weight; -1: none is known
  uint32_t head, tensor_row;  // its place in the tensors
};

// The rows of one request that are worked on at the same time, for all KV heads. Numbered by
// units: a unit is one row, numbered head by head (query head of the group * window_rows + window
// row), or, when `averaged`, the rows that all query heads of a group have at one window row.
struct QueryItem {
  DeviceView k, v;  // v.rows.head is null when nothing reads V
  // [rows, Hq, dk], [rows, Hq, dv], [rows, Hq], [1, Hq] and [1, Hq]; base null: not given.
  DeviceTensor q, o, lse, slopes, sinks;
  DeviceQueryRotation rotation;
  const int32_t* limits;  // [rows of the tensors] or null: by place
  uint32_t tokens;        // N
  uint32_t sliding;       // > 0: width of the sliding window
  uint32_t group;         // query heads of a KV head
  uint32_t o_elems;       // dv
  uint32_t first_row;     // row of the tensors that window row 0 is
  uint32_t window_rows;   // W'
  uint32_t averaged;
  uint32_t lse_base2;
  uint32_t widened;                   // q_rows are wanted
  uint32_t reads_keys, reads_values;  // whose non-finite elements hide a token
  uint32_t unit_begin, unit_count;
  // Results, [KV heads][rows or units] each; rows = unit_count, times group when averaged.
  QueryRow* rows;
  float* q_rows;      // [..][rows][dk], turned; null unless wanted
  float* o_rows;      // [..][units][dv], means when averaged; null when nobody asks
  uint32_t* usable;   // [KV heads] rows that vote; counts go on from batch to batch
  uint32_t* skipped;  // [KV heads] rows left out

  KVTRIAGE_HOST_DEVICE uint32_t rows_per_unit() const { return averaged != 0 ? group : 1; }
  KVTRIAGE_HOST_DEVICE uint32_t row_count() const { return unit_count * rows_per_unit(); }
};

// One launch for the units of all items, which may stand at the head of larger structs: item i is
// `stride` bytes behind item i - 1. `most_units` and `most_heads`: the largest of them.
cudaError_t LaunchGatherRows(const QueryItem* items, size_t stride, uint32_t count,
                             uint32_t most_units, uint32_t most_heads, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUERY_ROWS_LAUNCH_H_
