#include "kernels/cuda/cuda_status.h"

#include <algorithm>
#include <iterator>

#include "kernels/core/error.h"

namespace kvtriage {

bool IsSticky(cudaError_t error) {
  constexpr int kSticky[] = {214, 220, 226, 700, 702, 710, 714, 715,
                             716, 717, 718, 719, 721, 911, 999};
  return std::find(std::begin(kSticky), std::end(kSticky), static_cast<int>(error)) !=
         std::end(kSticky);
}

absl::Status CudaStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const auto number = static_cast<uint64_t>(error);
  if (error == cudaErrorMemoryAllocation) {
    return Error(ErrorReason::kDeviceMemory, call, "no device memory left").Got(number);
  }
  if (IsSticky(error))
    return Error(ErrorReason::kDeviceLost, call, "the device is lost").Got(number);
  return Error(ErrorReason::kInternal, call, "a CUDA call failed").Got(number);
}

}  // namespace kvtriage
