// One device's kernels. A backend runs one call at a time (the lane's thread); a call uses all
// threads of the backend and returns when its work is done.
#ifndef KVTRIAGE_KERNELS_BACKEND_H_
#define KVTRIAGE_KERNELS_BACKEND_H_

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "kvtriage/kernels/compact.h"
#include "kvtriage/kernels/divergence.h"
#include "kvtriage/kernels/fuse.h"
#include "kvtriage/kernels/quality.h"
#include "kvtriage/kernels/rotate.h"
#include "kvtriage/kernels/score.h"
#include "kvtriage/kernels/select.h"

namespace kvtriage {

// Asked between the layers of a read-only call; an error ends the call with it. May be empty.
using StopCheck = std::function<absl::Status()>;

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu" (later "cuda:N"): the metric label.
  virtual std::string name() const = 0;

  // Results get one entry per request. An input with queries of which none is usable for some KV
  // head is NO_USABLE_ROW (kernels/core/error.h), index = KV head.
  virtual absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                             std::vector<ScoreResult>& results) = 0;
  virtual absl::Status Select(std::span<const SelectRequest> requests,
                              std::vector<SelectResult>& results) = 0;
  virtual absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                               std::vector<QualityResult>& results) = 0;
  virtual absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) = 0;

  // Moves all requests; they belong to one sequence and write disjoint rows. Not interruptible.
  virtual absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) = 0;
  // Turns all requests' keys; no two share a row. Not interruptible.
  virtual absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) = 0;
  // Copies all requests' rows; no two write the same row. Not interruptible.
  virtual absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) = 0;
};

// Host memory. `threads` >= 1 counts the calling thread, which works too; 0 = one per core.
std::unique_ptr<Backend> MakeCpuBackend(int threads);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_BACKEND_H_
