// Mean and covariance of the queries of one head.
#ifndef KVTRIAGE_KERNELS_CPU_QUERY_MOMENTS_H_
#define KVTRIAGE_KERNELS_CPU_QUERY_MOMENTS_H_

#include <cstdint>

#include "kernels/core/expected_rules.h"
#include "kernels/cpu/aligned_floats.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// Work memory of one worker.
struct MomentScratch {
  AlignedFloats rows, sums, lost;
};

// Rows [first_row, queries.rows) of one head. Sums of centred products in float32, compensated, in
// a fixed order.
QueryMoments FindQueryMoments(const TensorView& queries, uint32_t head, uint64_t first_row,
                              MomentScratch& scratch);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_QUERY_MOMENTS_H_
