// Calls of the CUDA driver, found through the runtime: nothing links libcuda, so that one binary
// starts everywhere.
#ifndef KVTRIAGE_SERVICE_MEMORY_CUDA_DRIVER_H_
#define KVTRIAGE_SERVICE_MEMORY_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_api.h"

namespace kvtriage {

struct AddressRange {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

class CudaDriver {
 public:
  // NO_DEVICE when the driver does not have the calls.
  static absl::StatusOr<CudaDriver> Find();

  // The allocation that holds `pointer`. The calling thread has set its device.
  cudaError_t RangeOf(const void* pointer, AddressRange& range) const;

 private:
  decltype(&cuMemGetAddressRange) address_range_ = nullptr;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_CUDA_DRIVER_H_
