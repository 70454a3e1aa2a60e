// Scores that window rows vote for (kvtriage/kernels/score.h): attention, OBCache's three, exact
// deletion, VATP and the attention part of CriticalKV, from queries or ready-made A, Z and O.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_QUERIES_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_QUERIES_H_

#include "absl/status/status.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

// Scores before pooling, NaN for bad rows, mass and counts. Views and tensors are of device memory;
// tables and lists are the host's. NO_USABLE_ROW as the backend says; DEVICE_MEMORY when the
// requests do not fit the workspace together.
absl::Status CudaScoreQueries(ScoreRequests requests, Workspace& workspace, ScoreResults results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_QUERIES_H_
