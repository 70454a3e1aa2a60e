#include "kernels/cuda/cuda_backend.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/compact.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/divergence.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/quality.h"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/score.h"
#include "kernels/cuda/select.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(std::string name, std::unique_ptr<Workspace> workspace)
      : name_(std::move(name)), workspace_(std::move(workspace)) {}

  std::string name() const override { return name_; }

  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    return Done(CudaScoreLayers(requests, Fresh(), stop, results));
  }

  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    return Done(CudaSelectLists(requests, Fresh(), results));
  }

  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override {
    return Done(CudaMeasureLayers(requests, Fresh(), stop, results));
  }

  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override {
    return Done(CudaDivergeRows(request, Fresh(), result));
  }

  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override {
    return Done(CudaMoveRows(requests, Fresh(), result));
  }

  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override {
    return Done(CudaRotateKeys(requests, Fresh(), result));
  }

  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override {
    return Done(CudaCopyRows(copies, Fresh(), result));
  }

 private:
  Workspace& Fresh() {
    workspace_->Reset();
    return *workspace_;
  }
  // A failed call may have left work in the stream, which must not read what the caller takes away.
  absl::Status Done(absl::Status status) {
    if (!status.ok()) workspace_->Finish().IgnoreError();
    return status;
  }

  const std::string name_;
  const std::unique_ptr<Workspace> workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int ordinal, uint64_t arena_bytes) {
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal), "backend.device");
  KVTRIAGE_ASSIGN_OR_RETURN(std::unique_ptr<Workspace> workspace, Workspace::Make(arena_bytes));
  return std::make_unique<CudaBackend>("cuda:" + std::to_string(ordinal), std::move(workspace));
}

}  // namespace kvtriage
