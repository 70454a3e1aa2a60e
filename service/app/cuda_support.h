// CUDA devices of this build. Which source stands behind it is chosen at link time: cuda_support.cc
// with the CUDA backend (or, in tests, its emulation), no_cuda_support.cc without.
#ifndef KVTRIAGE_SERVICE_APP_CUDA_SUPPORT_H_
#define KVTRIAGE_SERVICE_APP_CUDA_SUPPORT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/app/config.h"
#include "service/engine/lane_device.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

struct CudaSupport {
  DeviceList devices;
  std::vector<DeviceLane> lanes;   // by device, without observers; point into `devices`
  std::vector<std::string> names;  // "cuda:0": labels, by device
};

// The devices that the configuration asks for, open. None of them is no error unless it says `cuda`
// or names a device: NO_DEVICE, GPU_NOT_VISIBLE, and what opening a device says. `on_lost` may come
// from several threads and more than once.
absl::StatusOr<CudaSupport> OpenCuda(const Config& config, const std::function<void()>& on_lost);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_CUDA_SUPPORT_H_
