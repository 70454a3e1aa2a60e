// Copies in a stream of their own.
#ifndef KVTRIAGE_SERVICE_MEMORY_CUDA_COPIER_H_
#define KVTRIAGE_SERVICE_MEMORY_CUDA_COPIER_H_

#include <memory>

#include "kernels/cuda/cuda_api.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

class CudaCopier final : public DeviceCopier {
 public:
  // For the calling thread, which has set its device.
  static absl::StatusOr<std::unique_ptr<CudaCopier>> Make();
  CudaCopier(const CudaCopier&) = delete;
  CudaCopier& operator=(const CudaCopier&) = delete;
  ~CudaCopier() override;

  absl::Status ToHost(std::span<std::byte> to, const std::byte* from) override;
  absl::Status ToDevice(std::byte* to, std::span<const std::byte> from) override;

  // Whether `error` is one that the device stays in: a call that harms nothing gives it again.
  bool StaysIn(cudaError_t error) const;

 private:
  explicit CudaCopier(cudaStream_t stream) : stream_(stream) {}
  absl::Status Finish();

  const cudaStream_t stream_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_CUDA_COPIER_H_
