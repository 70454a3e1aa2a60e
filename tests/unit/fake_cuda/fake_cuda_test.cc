// The stand-in keeps what it says of itself (fake_cuda.h): our tests of the CUDA path are worth
// what it is worth.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/unit/fake_cuda/fake_device.h"

namespace kvtriage {
namespace {

void AddOne(float* values) {
  float* mine = values + simt::BlockX() * 32 + simt::ThreadX();
  simt::Store(mine, simt::Load(mine) + 1);
}
void Nothing() {}

TEST_F(FakeDevice, CopiesAndKernelsRunInOrder) {
  for (const char* seed : {"seed=0", "seed=1", "seed=2", "seed=3"}) {
    ASSERT_TRUE(fake_cuda::Script(seed));
    float* device = nullptr;
    float* pinned = nullptr;
    const size_t bytes = 64 * sizeof(float);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), bytes), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), bytes, cudaHostAllocDefault),
              cudaSuccess);
    std::vector<float> source(64, 5.0f);
    ASSERT_EQ(cudaMemcpyAsync(device, source.data(), bytes, cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    source.assign(64, -1.0f);  // pageable: was read at the call
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(LaunchKernel(AddOne, {.blocks_x = 2, .threads = 32}, stream_, device), cudaSuccess);
    }
    ASSERT_EQ(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    Finish(stream_);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(pinned[i], 8.0f) << seed;
    EXPECT_EQ(fake_cuda::Counts()["launch"], 3u);
    EXPECT_EQ(cudaFree(device), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  }
}

// Holds its stream until the host opens the gate.
void WaitForGate(const uint32_t* gate) {
  while (simt::LoadAcquire(gate) == 0) simt::SpinPause();
}

TEST_F(FakeDevice, AResultReadTooEarlyIsNotANumber) {
  float* device = nullptr;
  float* pinned = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 4), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), 4, cudaHostAllocDefault), cudaSuccess);
  // This stream waits for an event of another one, which a kernel holds back.
  cudaStream_t other = nullptr;
  cudaEvent_t passed = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming), cudaSuccess);
  uint32_t gate = 0;
  ASSERT_EQ(LaunchKernel(WaitForGate, {}, other, static_cast<const uint32_t*>(&gate)), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(passed, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream_, passed, 0), cudaSuccess);
  *pinned = 7;
  ASSERT_EQ(cudaMemsetAsync(device, 0, 4, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_TRUE(std::isnan(*pinned)) << "neither the old number nor the new one";
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(passed), cudaErrorNotReady);
  __atomic_store_n(&gate, 1u, __ATOMIC_RELEASE);
  Finish(stream_);
  EXPECT_EQ(*pinned, 0.0f);
  std::vector<float> host(1, 7.0f);
  EXPECT_EQ(cudaMemcpyAsync(host.data(), device, 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(host[0], 0.0f) << "a copy to pageable memory returns when it is done";
  EXPECT_EQ(cudaEventDestroy(passed), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(FakeDevice, EventsOrderStreamsAndMeasure) {
  cudaStream_t other = nullptr;
  cudaEvent_t first = nullptr, second = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&first, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&second, 0), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(first), cudaSuccess) << "never recorded";
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, first, second), cudaErrorInvalidResourceHandle);
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 32 * 4), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device, 0, 32 * 4, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(first, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, first, 0), cudaSuccess);
  ASSERT_EQ(LaunchKernel(AddOne, {.threads = 32}, other, device), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(second, other), cudaSuccess);
  EXPECT_TRUE(WaitUntil([&] { return cudaEventQuery(second) == cudaSuccess; }));
  EXPECT_EQ(cudaEventElapsedTime(&ms, first, second), cudaSuccess);
  EXPECT_GE(ms, 0.0f);
  std::vector<float> host(32);
  ASSERT_EQ(cudaMemcpyAsync(host.data(), device, 32 * 4, cudaMemcpyDeviceToHost, other),
            cudaSuccess);
  EXPECT_EQ(host, std::vector<float>(32, 1.0f));
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(first), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(second), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(FakeDevice, FreshMemoryIsNotANumberAndBounded) {
  ASSERT_TRUE(fake_cuda::Script("memory=8388608"));
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 3 << 20), cudaSuccess);
  EXPECT_TRUE(std::isnan(device[0]));
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, 8u << 20);
  EXPECT_EQ(free, 4u << 20) << "in steps of 2 MiB";
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 5 << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMemcpyAsync(device, &total, (3 << 20) + 1, cudaMemcpyHostToDevice, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue) << "twice";
}

TEST_F(FakeDevice, ErrorsComeByScript) {
  ASSERT_TRUE(fake_cuda::Script("cudaMalloc@2:error=2; launch@1:error=719"));
  void* device = nullptr;
  EXPECT_EQ(cudaMalloc(&device, 8), cudaSuccess);
  void* none = nullptr;
  EXPECT_EQ(cudaMalloc(&none, 8), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(LaunchKernel(Nothing, {}, stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(LaunchKernel(Nothing, {}, stream_), cudaSuccess) << "not sticky";
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_FALSE(fake_cuda::Script("cudaMalloc:error=2"));
  EXPECT_FALSE(fake_cuda::Script("cudaMalloc@1:eror=2"));
  EXPECT_FALSE(fake_cuda::Script("sed=1"));
}

TEST_F(FakeDevice, AStickyErrorIsEverywhereAndStays) {
  ASSERT_TRUE(fake_cuda::Script("cudaStreamQuery@1:sticky=700"));
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorIllegalAddress);
  void* device = nullptr;
  EXPECT_EQ(cudaMalloc(&device, 8), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress) << "does not clear";
  std::thread([] {
    EXPECT_EQ(cudaSetDevice(0), cudaErrorIllegalAddress);
    size_t free, total;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaErrorIllegalAddress);
  }).join();
}

TEST_F(FakeDevice, DevicesAreAsScripted) {
  ASSERT_TRUE(fake_cuda::Script("devices=2"));
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  cudaDeviceProp zero, one;
  ASSERT_EQ(cudaGetDeviceProperties(&zero, 0), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceProperties(&one, 1), cudaSuccess);
  EXPECT_NE(std::memcmp(zero.uuid.bytes, one.uuid.bytes, 16), 0);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  ASSERT_TRUE(fake_cuda::Script("devices=0"));
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
}

TEST_F(FakeDevice, KernelsNeedTheAttributeForMuchSharedMemory) {
  EXPECT_EQ(
      emulation::EnqueueGrid(nullptr, {.threads = 1, .shared_bytes = 64 << 10}, stream_, [] {}),
      cudaErrorInvalidValue);
  EXPECT_EQ(LaunchKernel(Nothing, {.shared_bytes = 64 << 10}, stream_), cudaSuccess);
  EXPECT_EQ(LaunchKernel(Nothing, {.shared_bytes = 228 << 10}, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(LaunchKernel(Nothing, {.blocks_y = 65536}, stream_), cudaErrorInvalidConfiguration);
  int blocks = 0;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, reinterpret_cast<const void*>(&Nothing), 128, 70 << 10),
            cudaSuccess);
  EXPECT_EQ(blocks, 3);
}

TEST_F(FakeDevice, GuardedMemoryIsForCopiesAndKernelsOnly) {
  ASSERT_TRUE(fake_cuda::Script("guard=1"));
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 128), cudaSuccess);
  EXPECT_DEATH(std::printf("%f\n", static_cast<double>(*device)), "");
  ASSERT_EQ(cudaMemsetAsync(device, 0, 128, stream_), cudaSuccess);
  ASSERT_EQ(LaunchKernel(AddOne, {.threads = 32}, stream_, device), cudaSuccess);
  std::vector<float> host(32);
  ASSERT_EQ(cudaMemcpyAsync(host.data(), device, 128, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(host[31], 1.0f);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(FakeDevice, AThreadWithoutADeviceIsAMistake) {
  EXPECT_EXIT(std::thread([] {
                void* device;
                cudaMalloc(&device, 8);
              }).join(),
              testing::ExitedWithCode(fake_cuda::kMisuseExit), "has not set its device");
}

}  // namespace
}  // namespace kvtriage
