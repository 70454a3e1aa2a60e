// CUDA devices: which there are, and the memory of one.
#ifndef KVTRIAGE_SERVICE_MEMORY_CUDA_DEVICE_H_
#define KVTRIAGE_SERVICE_MEMORY_CUDA_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

// All that CUDA shows this process, by ordinal; memory_bytes is not known yet. Starts no context.
// NO_DEVICE, with the error's number, when there is no driver, no device, or they do not answer.
absl::StatusOr<std::vector<DeviceFacts>> ListCudaDevices();

// Starts the device's mapper, and on its thread the context. `on_lost` is called once, on that
// thread, when the device has failed for good. INTERNAL, NO_DEVICE, DEVICE_MEMORY, DEVICE_LOST.
absl::StatusOr<std::unique_ptr<DeviceMemory>> OpenCudaDevice(const DeviceFacts& facts,
                                                             std::function<void()> on_lost);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_CUDA_DEVICE_H_
