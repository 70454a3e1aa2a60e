// CUDA's calls as this library makes them: errors in our words, a thread's device set for a while,
// copies that are done when they return.
#ifndef KVTRIAGE_CLIENT_CPP_CUDA_CALLS_H_
#define KVTRIAGE_CLIENT_CPP_CUDA_CALLS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_api.h"

namespace kvtriage::client {

// OK; RESOURCE_EXHAUSTED (device_memory) for 2, UNAVAILABLE (no_device) where there is none, else
// INTERNAL (cuda_call). `call` is the call's name. Takes the error back from the thread, where the
// caller's own next check would find it.
absl::Status FromCuda(cudaError_t error, const char* call);

// While it lives, the thread's device is `device`.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const int device_;
  int before_ = 0;
  absl::Status status_;
};

// Between host and device memory; on a stream of its own, ordered with nothing else. The thread has
// set its device.
absl::Status CopyAndWait(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind);

}  // namespace kvtriage::client

#define KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(expression, call) \
  KVTRIAGE_RETURN_IF_ERROR(::kvtriage::client::FromCuda((expression), call))

#endif  // KVTRIAGE_CLIENT_CPP_CUDA_CALLS_H_
