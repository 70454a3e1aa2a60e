#include "tests/integration/cuda_lender.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/integration/raw_worker.h"

namespace kvtriage {
namespace {

void Need(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: CUDA error %d\n", what, static_cast<int>(error));
  std::abort();
}

void Wait(cudaStream_t stream) {
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  Need(state, "stream");
}

std::string UuidOf(int device) {
  cudaDeviceProp properties;
  Need(cudaGetDeviceProperties(&properties, device), "properties");
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x",
                  static_cast<unsigned char>(properties.uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

}  // namespace

CudaLender::CudaLender(uint64_t offset)
    : offset_(offset), bytes_(offset + RawWorker::kRegionBytes) {
  Need(cudaSetDevice(0), "device");
  Need(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  Need(cudaMalloc(&memory_, bytes_), "allocation");
  std::vector<std::byte> content(bytes_, std::byte{0x5A});
  std::memcpy(content.data() + offset_, RawWorker::Content().data(), RawWorker::kRegionBytes);
  Need(cudaMemcpyAsync(memory_, content.data(), bytes_, cudaMemcpyHostToDevice, stream_), "copy");
  Wait(stream_);
}

CudaLender::~CudaLender() {
  Need(cudaStreamDestroy(stream_), "stream");
  Need(cudaFree(memory_), "free");
}

v1::RegionSpec CudaLender::Region(uint64_t generation) const {
  cudaIpcMemHandle_t handle;
  Need(cudaIpcGetMemHandle(&handle, memory_), "handle");
  v1::RegionSpec region;
  v1::RegionSpec::CudaIpc& cuda = *region.mutable_cuda_ipc();
  cuda.set_handle(handle.reserved, sizeof handle.reserved);
  cuda.set_device_uuid(UuidOf(0));
  cuda.set_base_offset(offset_);
  cuda.set_allocation_bytes(bytes_);
  cuda.set_exporter_pid(static_cast<uint32_t>(getpid()));
  cuda.set_generation(generation);
  const std::vector<float> content = RawWorker::Content();
  region.mutable_fingerprint()->set_offset(64);
  region.mutable_fingerprint()->set_expected(
      std::string(reinterpret_cast<const char*>(content.data()) + 64, 64));
  return region;
}

std::vector<std::byte> CudaLender::Bytes() const {
  std::vector<std::byte> bytes(bytes_);
  Need(cudaMemcpyAsync(bytes.data(), memory_, bytes_, cudaMemcpyDeviceToHost, stream_), "copy");
  Wait(stream_);
  return bytes;
}

}  // namespace kvtriage
