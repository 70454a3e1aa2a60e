#include "tests/gpu/device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace kvtriage::gpu {
namespace {

constexpr int kWarmRuns = 3;

struct Event {
  Event() { Must(cudaEventCreateWithFlags(&event, 0), "cudaEventCreateWithFlags"); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t event = nullptr;
};

}  // namespace

void SetDeviceOrSkip() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU (%s)\n",
                error == cudaSuccess ? "no device" : cudaGetErrorName(error));
    std::exit(kSkipped);
  }
  Must(cudaSetDevice(0), "cudaSetDevice");
}

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s gives %d (%s)\n", what, static_cast<int>(error), cudaGetErrorName(error));
  std::fflush(stdout);
  std::exit(1);
}

void Finish(cudaStream_t stream) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) Must(state, "work in a stream");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

DeviceBuffer::DeviceBuffer(uint64_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  Must(cudaMalloc(&memory, bytes), "cudaMalloc");
  memory_ = static_cast<std::byte*>(memory);
}

DeviceBuffer::~DeviceBuffer() { cudaFree(memory_); }

void DeviceBuffer::Fill(const void* from, uint64_t bytes, cudaStream_t stream) {
  Must(cudaMemcpyAsync(memory_, from, bytes, cudaMemcpyHostToDevice, stream), "copy to the device");
  Finish(stream);
}

void DeviceBuffer::Read(void* to, uint64_t bytes, cudaStream_t stream) const {
  Must(cudaMemcpyAsync(to, memory_, bytes, cudaMemcpyDeviceToHost, stream), "copy from the device");
  Finish(stream);
}

double SecondsOf(cudaStream_t stream, const std::function<void()>& work) {
  const Event start, end;
  Must(cudaEventRecord(start.event, stream), "cudaEventRecord");
  work();
  Must(cudaEventRecord(end.event, stream), "cudaEventRecord");
  Finish(stream);
  float ms = 0;
  Must(cudaEventElapsedTime(&ms, start.event, end.event), "cudaEventElapsedTime");
  return double{ms} * 1e-3;
}

double BestSecondsOf(cudaStream_t stream, int repeats, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < kWarmRuns; ++i) SecondsOf(stream, work);
  for (int i = 0; i < repeats; ++i) best = std::min(best, SecondsOf(stream, work));
  return best;
}

}  // namespace kvtriage::gpu
