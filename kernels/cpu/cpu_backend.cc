#include <algorithm>
#include <thread>

#include "kernels/core/status_macros.h"
#include "kernels/cpu/compact.h"
#include "kernels/cpu/divergence.h"
#include "kernels/cpu/fuse.h"
#include "kernels/cpu/quality.h"
#include "kernels/cpu/rotate.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/select_lists.h"
#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/backend.h"

namespace kvtriage {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int threads) : team_(threads) {}

  std::string name() const override { return "cpu"; }

  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    results.clear();
    results.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      if (stop) KVTRIAGE_RETURN_IF_ERROR(stop());
      KVTRIAGE_RETURN_IF_ERROR(ScoreLayer(requests[i], team_, results[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    SelectLists(requests, team_, results);
    return absl::OkStatus();
  }

  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override {
    results.clear();
    results.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      if (stop) KVTRIAGE_RETURN_IF_ERROR(stop());
      MeasureLayer(requests[i], team_, results[i]);
    }
    return absl::OkStatus();
  }

  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override {
    DivergeRows(request, team_, result);
    return absl::OkStatus();
  }

  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override {
    MoveRows(requests, team_, result);
    return absl::OkStatus();
  }

  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override {
    result = {};
    for (const RotateRequest& request : requests) RotateKeys(request, team_, result);
    return absl::OkStatus();
  }

  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override {
    CopyNumberedRows(copies, team_, result);
    return absl::OkStatus();
  }

 private:
  ThreadTeam team_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads) {
  // hardware_concurrency may be 0 where the system does not say.
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::make_unique<CpuBackend>(threads > 0 ? threads : cores);
}

}  // namespace kvtriage
