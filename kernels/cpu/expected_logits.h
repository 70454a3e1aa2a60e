// The logits that a distribution of queries gives to keys.
#ifndef KVTRIAGE_KERNELS_CPU_EXPECTED_LOGITS_H_
#define KVTRIAGE_KERNELS_CPU_EXPECTED_LOGITS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/attention.h"

namespace kvtriage {

// What the queries of one head will be, scale included: the logit of k is linear.k + k^T quadratic
// k.
struct ExpectedQuery {
  std::vector<float> linear;     // [dk]
  std::vector<float> quadratic;  // [dk][dk], as row_blocks.h packs dk rows for ExpectedTileRows()
};

size_t ExpectedTileRows();

// Work memory of one worker.
struct ExpectedScratch {
  AlignedFloats pack, keys, values, tile;
};

// Rows [begin, end) of one KV head: logits[h] points to one number per row for query head h of the
// group, norms gets |v|_2. Both are NaN for rows with a non-finite element in K or V.
void ExpectedLogits(const LayerRows& layer, uint32_t kv_head,
                    const std::vector<const ExpectedQuery*>& group, uint64_t begin, uint64_t end,
                    ExpectedScratch& scratch, const std::vector<float*>& logits, float* norms);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_EXPECTED_LOGITS_H_
