// The IPC handles of one device that are open, over all sessions: opened once, counted, closed with
// their last mapping.
#ifndef KVTRIAGE_SERVICE_MEMORY_CUDA_HANDLES_H_
#define KVTRIAGE_SERVICE_MEMORY_CUDA_HANDLES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/memory/cuda_driver.h"
#include "service/memory/mapping.h"
#include "service/policy/register_spec.h"

namespace kvtriage {

// What cudaIpcOpenMemHandle means by an error: PID_COLLISION (201), PEER_UNSUPPORTED (217, 711),
// DEVICE_MEMORY (2), DEVICE_LOST (sticky), INTERNAL (208), MAP_FAILED (all others).
absl::Status OpenError(cudaError_t error);

// On the thread of the device's mapper only; outlives the mappings.
class CudaHandles {
 public:
  // `on_error` is told of every error of the driver.
  CudaHandles(const CudaDriver& driver, std::function<void(cudaError_t)> on_error)
      : driver_(driver), on_error_(std::move(on_error)) {}

  // A mapping of [base_offset, base_offset + bytes). STALE_GENERATION, HANDLE_IN_USE, MAP_FAILED
  // and those of OpenError; fields without prefix ("generation").
  absl::StatusOr<std::unique_ptr<Mapping>> Open(const CudaAllocation& allocation, uint64_t bytes,
                                                const void* session);

 private:
  class OpenHandle;
  class Part;

  std::shared_ptr<OpenHandle> Find(const CudaAllocation& allocation);
  absl::StatusOr<std::shared_ptr<OpenHandle>> OpenAnew(const CudaAllocation& allocation,
                                                       const void* session);
  absl::Status Refused(cudaError_t error);

  const CudaDriver driver_;
  const std::function<void(cudaError_t)> on_error_;
  std::map<std::array<std::byte, 64>, std::weak_ptr<OpenHandle>> open_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_CUDA_HANDLES_H_
