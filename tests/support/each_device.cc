#include "tests/support/each_device.h"

#include <cstdlib>
#include <utility>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/divergence.h"
#include "kernels/cuda/fuse.h"
#include "kernels/cuda/quality.h"
#include "kernels/cuda/rotate.h"
#include "kernels/cuda/score.h"
#include "kernels/cuda/select.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {
namespace {

// The stand-in's folder: read at its first call.
void SetFolder() {
  static const TempDir folder;
  static const bool set = setenv("KVTRIAGE_FAKE_CUDA", folder.path().c_str(), 1) == 0;
  EXPECT_TRUE(set);
}

}  // namespace

EachDevice::EachDevice() {
  if (on_cpu()) return;
  SetFolder();
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  SetWorkspace(16 << 20);
}

EachDevice::~EachDevice() { emulation::SetOptions({}); }

void EachDevice::SetWorkspace(uint64_t bytes) {
  if (on_cpu()) return;
  absl::StatusOr<std::unique_ptr<Workspace>> made = Workspace::Make(bytes);
  ASSERT_TRUE(made.ok()) << made.status();
  workspace_ = std::move(*made);
}

absl::Status EachDevice::Rotate(std::span<const RotateRequest> requests, RotateResult& result,
                                int threads) {
  if (on_cpu()) return MakeCpuBackend(threads)->Rotate(requests, result);
  workspace_->Reset();
  return CudaRotateKeys(requests, *workspace_, result);
}

absl::Status EachDevice::CopyRows(std::span<const RowCopy> copies, RowCopyResult& result,
                                  int threads) {
  if (on_cpu()) return MakeCpuBackend(threads)->CopyRows(copies, result);
  workspace_->Reset();
  return CudaCopyRows(copies, *workspace_, result);
}

absl::Status EachDevice::Select(std::span<const SelectRequest> requests,
                                std::vector<SelectResult>& results, int threads) {
  if (on_cpu()) return MakeCpuBackend(threads)->Select(requests, results);
  workspace_->Reset();
  return CudaSelectLists(requests, *workspace_, results);
}

absl::Status EachDevice::Measure(std::span<const QualityRequest> requests,
                                 std::vector<QualityResult>& results, int threads) {
  if (on_cpu()) return MakeCpuBackend(threads)->Measure(requests, nullptr, results);
  workspace_->Reset();
  return CudaMeasureLayers(requests, *workspace_, nullptr, results);
}

absl::Status EachDevice::Score(std::span<const ScoreRequest> requests,
                               std::vector<ScoreResult>& results, int threads) {
  if (on_cpu()) return MakeCpuBackend(threads)->Score(requests, {}, results);
  return CudaScoreLayers(requests, *workspace_, {}, results);
}

ScoreResult EachDevice::ScoreOne(const ScoreRequest& request, int threads) {
  std::vector<ScoreResult> results(1);
  const absl::Status status = Score({&request, 1}, results, threads);
  EXPECT_TRUE(status.ok()) << status;
  return results[0];
}

absl::Status EachDevice::Diverge(const DivergenceRequest& request, DivergenceResult& result,
                                 int threads) {
  if (on_cpu()) return MakeCpuBackend(threads)->Diverge(request, result);
  workspace_->Reset();
  return CudaDivergeRows(request, *workspace_, result);
}

}  // namespace kvtriage
