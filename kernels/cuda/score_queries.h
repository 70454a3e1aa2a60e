// Scores that window rows vote for (kvtriage/kernels/score.h): attention, OBCache's three, exact
// deletion, VATP and the attention part of CriticalKV, from queries or ready-made A, Z and O.
#ifndef KVTRIAGE_KERNELS_CUDA_SCORE_QUERIES_H_
#define KVTRIAGE_KERNELS_CUDA_SCORE_QUERIES_H_

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/backend.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// One result per request: scores before pooling, NaN for bad rows, mass and counts. Views and
// tensors are of device memory; tables and lists are the host's. Takes all of the workspace, and
// the requests in as few groups as fit it; `stop` is asked between them. NO_USABLE_ROW as the
// backend says; DEVICE_MEMORY when a single request does not fit.
absl::Status CudaScoreQueries(std::span<const ScoreRequest* const> requests, Workspace& workspace,
                              const StopCheck& stop, std::span<ScoreResult* const> results);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_SCORE_QUERIES_H_
