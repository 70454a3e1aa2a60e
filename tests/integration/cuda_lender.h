// An allocation of the stand-in's device that holds a RawWorker's cache, and its handle.
#ifndef KVTRIAGE_TESTS_INTEGRATION_CUDA_LENDER_H_
#define KVTRIAGE_TESTS_INTEGRATION_CUDA_LENDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_api.h"
#include "kvtriage/v1/memory.pb.h"

namespace kvtriage {

// One thread's, which it gives the device 0. Ends the program when CUDA refuses.
class CudaLender {
 public:
  // The cache begins `offset` bytes into the allocation.
  explicit CudaLender(uint64_t offset = 512);
  ~CudaLender();
  CudaLender(const CudaLender&) = delete;
  CudaLender& operator=(const CudaLender&) = delete;

  // As the worker `generation`-th lends it, with a fingerprint of its first bytes.
  v1::RegionSpec Region(uint64_t generation = 1) const;
  // Everything, in front of the cache too.
  std::vector<std::byte> Bytes() const;
  uint64_t offset() const { return offset_; }

 private:
  const uint64_t offset_, bytes_;
  void* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_INTEGRATION_CUDA_LENDER_H_
