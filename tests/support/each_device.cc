#include "tests/support/each_device.h"

#include <cstdlib>
#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "tests/support/mirrored_backend.h"
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

std::unique_ptr<Backend> MakeDeviceBackend(Device device, int threads, uint64_t arena_bytes) {
  if (device == Device::kCpu) return MakeCpuBackend(threads);
  SetFolder();
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeCudaBackend(0, arena_bytes);
  EXPECT_TRUE(made.ok()) << made.status();
  return MirrorHostMemory(std::move(*made));
}

EachDevice::~EachDevice() { emulation::SetOptions({}); }

void EachDevice::SetWorkspace(uint64_t bytes) {
  backend_.reset();
  arena_bytes_ = bytes;
}

ScoreResult EachDevice::ScoreOne(const ScoreRequest& request, int threads) {
  std::vector<ScoreResult> results(1);
  const absl::Status status = Score({&request, 1}, results, threads);
  EXPECT_TRUE(status.ok()) << status;
  return results[0];
}

Backend& EachDevice::backend(int threads) {
  if (backend_ == nullptr || (on_cpu() && threads_ != threads)) {
    backend_ = MakeDeviceBackend(GetParam(), threads, arena_bytes_);
    threads_ = threads;
  }
  return *backend_;
}

}  // namespace kvtriage
