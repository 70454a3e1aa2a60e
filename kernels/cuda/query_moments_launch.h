// What finding the moments of queries is started with (query_moments.cuh).
#ifndef KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_LAUNCH_H_
#define KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/score_lists_launch.h"

namespace kvtriage {

inline constexpr uint32_t kMomentTile = 32;  // rows judged at a time

// Rows [first_row, first_row + rows) of one query head.
struct QueryList {
  DeviceTensor q;  // [.., Hq, elems]
  DeviceTensor
      given;  // covariance [elems, Hq, elems] that came instead; then q is the mean [1, ..]
  uint32_t head, elems;
  uint32_t first_row, rows;
  uint64_t first;        // place of the first row in arrays with one number per row
  uint32_t first_piece;  // of kPieceRows rows
  uint64_t mean;         // place of the head's [elems] in `means`
  uint64_t covariance;   // and of its [elems][elems] in `covariances`
};

// A tile of a covariance.
struct CovarianceTile {
  uint32_t list, row, column;  // first channels
};

struct MomentArgs {
  const QueryList* lists;
  const ListPiece* pieces;
  const CovarianceTile* tiles;
  uint32_t pitch;      // largest head size
  uint8_t* is_good;    // one per row: all elements are finite
  float* sums;         // [pieces][pitch], of good rows
  uint32_t* good;      // [pieces] their number
  double* means;       // of every list [elems]
  uint32_t* counts;    // [lists] good rows
  float* covariances;  // of every list [elems][elems]: sums of centred products, undivided
};

inline constexpr size_t MomentSharedBytes(size_t pitch) {
  return pitch * sizeof(double) + kMomentTile * sizeof(uint32_t);
}

// Sums, means, covariances: three launches. Lists that brought theirs are left out.
cudaError_t LaunchQueryMoments(const MomentArgs& args, uint32_t lists, uint32_t pieces,
                               uint32_t tiles, cudaStream_t stream);
// The moments of those lists, into `means` and `covariances`.
cudaError_t LaunchCopyMoments(const MomentArgs& args, uint32_t lists, cudaStream_t stream);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_QUERY_MOMENTS_LAUNCH_H_
