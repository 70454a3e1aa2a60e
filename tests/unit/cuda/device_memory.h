// Bytes on the test's device: filled from the host and read back by copies, as on a real one.
#ifndef KVTRIAGE_TESTS_UNIT_CUDA_DEVICE_MEMORY_H_
#define KVTRIAGE_TESTS_UNIT_CUDA_DEVICE_MEMORY_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage {

class DeviceMemory {
 public:
  DeviceMemory(std::span<const std::byte> bytes, Workspace& workspace)
      : workspace_(workspace), size_(bytes.size()) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, size_), cudaSuccess);
    memory_ = static_cast<std::byte*>(memory);
    EXPECT_EQ(
        cudaMemcpyAsync(memory, bytes.data(), size_, cudaMemcpyHostToDevice, workspace.stream()),
        cudaSuccess);
    EXPECT_TRUE(workspace.Finish().ok());
  }
  ~DeviceMemory() { EXPECT_EQ(cudaFree(memory_), cudaSuccess); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return memory_; }
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> bytes(size_);
    EXPECT_TRUE(workspace_.Download<std::byte>(memory_, bytes).ok());
    return bytes;
  }

 private:
  Workspace& workspace_;
  size_t size_;
  std::byte* memory_ = nullptr;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_CUDA_DEVICE_MEMORY_H_
