// What the programs of this folder share: a device or a clear word that there is none, memory on
// it, and its own clock. They run on a real device and, linked with the tests' stand-in, without
// one.
#ifndef KVTRIAGE_TESTS_GPU_DEVICE_H_
#define KVTRIAGE_TESTS_GPU_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::gpu {

inline constexpr int kSkipped = 77;  // exit code: there is no GPU

// Sets device 0 for the calling thread. Without a device or driver: prints "skipped: no GPU" and
// the reason, exits with kSkipped.
void SetDeviceOrSkip();

// Prints what failed and with which code, and exits with 1, unless `error` is cudaSuccess.
void Must(cudaError_t error, const char* what);

// Until the stream is idle.
void Finish(cudaStream_t stream);

// Device memory, not initialised; exits when there is not enough.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(uint64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return memory_; }
  uint64_t size() const { return bytes_; }
  void Fill(const void* from, uint64_t bytes, cudaStream_t stream);
  void Read(void* to, uint64_t bytes, cudaStream_t stream) const;

 private:
  const uint64_t bytes_;
  std::byte* memory_ = nullptr;
};

// Seconds of device time between two events in the stream around `work`.
double SecondsOf(cudaStream_t stream, const std::function<void()>& work);

// Least of `repeats` runs after three that do not count.
double BestSecondsOf(cudaStream_t stream, int repeats, const std::function<void()>& work);

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_DEVICE_H_
