// Retained mass and output error of single query rows: the inner part of quality.cc.
#ifndef KVTRIAGE_KERNELS_CPU_QUALITY_ROWS_H_
#define KVTRIAGE_KERNELS_CPU_QUALITY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/core/quality_rules.h"
#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/quality.h"

namespace kvtriage {

// Rows [begin, end) of a KV head's group, numbered head by head: row n is row n % rows of query
// head n / rows of the group.
struct QualityTask {
  const QualityRequest& request;
  uint32_t kv_head;
  size_t rows;  // of the input that are measured, per query head
  size_t begin, end;
};

// What the kernels need of the usable rows of a task.
struct QualityRows {
  std::vector<size_t> number;         // which row of the task
  std::vector<uint32_t> head, row;    // place in the tensors
  std::vector<int32_t> first, limit;  // tokens that the row sees
  std::vector<double> lse2;           // base 2; unused unless it was given
  std::vector<float> slope2;          // ALiBi slope in base 2; 0: none
  std::vector<double> sink2;          // learned sink in base 2; -Inf: none or not known
  std::vector<float> q, o;            // [rows][elems], where given

  size_t size() const { return number.size(); }
};

// Reads the rows of a task and leaves out those that score.h calls unusable, except rows that see
// nothing but bad tokens: only the tokens tell.
void GatherQualityRows(const QualityTask& task, QualityRows& rows);

// Work memory of one worker.
struct QualityScratch {
  QualityRows rows;
  AlignedFloats q_blocks, pack, keys, values, tile, kept_tile;
  AlignedFloats kept_sums, kept_lost, rest_sums, rest_lost;
};

// Measures the task's rows; `out` has end - begin entries. Token panels are fixed, so the numbers
// depend on nothing but the request.
void MeasureRows(const QualityTask& task, QualityScratch& scratch, RowQuality* out);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_QUALITY_ROWS_H_
