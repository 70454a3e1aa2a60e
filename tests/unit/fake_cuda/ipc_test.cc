// Memory and events of one process, opened in another: the facts of CUDA IPC that the service is
// built on (one mapping of the whole allocation at its base; what fails, and how).
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/fake_cuda/exporter_process.h"
#include "tests/unit/fake_cuda/fake_device.h"

namespace kvtriage {
namespace {

cudaError_t Open(const std::string& hex, float** memory) {
  return cudaIpcOpenMemHandle(reinterpret_cast<void**>(memory), FromHex<cudaIpcMemHandle_t>(hex),
                              cudaIpcMemLazyEnablePeerAccess);
}

using CudaIpc = FakeDevice;

TEST_F(CudaIpc, TwoProcessesShareMemory) {
  Exporter exporter;
  float* memory = nullptr;
  ASSERT_EQ(Open(exporter.handle(), &memory), cudaSuccess);
  EXPECT_EQ(memory[0], 42.0f);
  EXPECT_EQ(exporter.Tell("set 7"), "set");
  EXPECT_EQ(memory[0], 7.0f);
  memory[0] = 9;
  EXPECT_EQ(std::stof(exporter.Tell("value")), 9.0f);
  float* again = nullptr;
  ASSERT_EQ(Open(exporter.handle(), &again), cudaSuccess);
  EXPECT_EQ(again, memory) << "counted, one mapping";
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(memory + 10)), 0);
  EXPECT_EQ(base, reinterpret_cast<CUdeviceptr>(memory));
  EXPECT_EQ(bytes, 4096u);
  EXPECT_EQ(fake_cuda::Counts()["mappings"], 1u);
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaSuccess);
  EXPECT_EQ(memory[0], 9.0f) << "still open once";
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaSuccess);
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue);
}

TEST_F(CudaIpc, MemoryOutlivesItsExporter) {
  Exporter exporter;
  float* memory = nullptr;
  ASSERT_EQ(Open(exporter.handle(), &memory), cudaSuccess);
  exporter.process().Signal(SIGKILL);
  EXPECT_TRUE(exporter.process().WaitExit().has_value());
  EXPECT_EQ(memory[0], 42.0f);
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaSuccess);
  ASSERT_TRUE(fake_cuda::Script("dead=205"));
  EXPECT_EQ(Open(exporter.handle(), &memory), cudaErrorMapBufferObjectFailed);
}

TEST_F(CudaIpc, AFreedHandleIsStaleAndItsBytesComeBack) {
  Exporter exporter;
  float* old = nullptr;
  ASSERT_EQ(Open(exporter.handle(), &old), cudaSuccess);
  EXPECT_EQ(exporter.Tell("free"), "freed");
  float* memory = nullptr;
  EXPECT_EQ(Open(exporter.handle(), &memory), cudaErrorInvalidResourceHandle);
  const std::string second = exporter.Tell("again");
  EXPECT_EQ(second, exporter.handle()) << "byte-equal handles, another allocation";
  ASSERT_EQ(Open(second, &memory), cudaSuccess);
  EXPECT_NE(memory, old);
  EXPECT_EQ(exporter.Tell("set 3"), "set");
  EXPECT_EQ(memory[0], 3.0f);
  EXPECT_EQ(old[0], 42.0f);
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaSuccess);
  EXPECT_EQ(cudaIpcCloseMemHandle(old), cudaSuccess);
}

TEST_F(CudaIpc, WhatDoesNotOpen) {
  void* own = nullptr;
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(cudaMalloc(&own, 64), cudaSuccess);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, own), cudaSuccess);
  void* opened = nullptr;
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
            cudaErrorDeviceUninitialized)
      << "by the exporting process";
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, {}, cudaIpcMemLazyEnablePeerAccess),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(own), cudaSuccess);
  for (const char* kind : {"vmm", "pool", "managed"}) {
    ASSERT_TRUE(fake_cuda::Script(std::string("cudaMalloc@1:kind=") + kind));
    ASSERT_EQ(cudaMalloc(&own, 64), cudaSuccess);
    EXPECT_EQ(cudaIpcGetMemHandle(&handle, own), cudaErrorInvalidValue) << kind;
    bool capable = true;
    ASSERT_EQ(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                    reinterpret_cast<CUdeviceptr>(own)),
              0);
    EXPECT_FALSE(capable) << kind;
    EXPECT_EQ(cudaFree(own), cudaSuccess);
  }
}

TEST_F(CudaIpc, EventsOfAnotherProcess) {
  Exporter exporter;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaIpcOpenEventHandle(&event, FromHex<cudaIpcEventHandle_t>(exporter.Tell("event"))),
            cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "never recorded";
  EXPECT_EQ(exporter.Tell("record"), "recorded");
  ASSERT_EQ(cudaStreamWaitEvent(stream_, event, 0), cudaSuccess);
  Finish(stream_);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  cudaEvent_t timed = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&timed, cudaEventInterprocess), cudaErrorInvalidValue);
  ASSERT_EQ(cudaEventCreateWithFlags(&timed, 0), cudaSuccess);
  cudaIpcEventHandle_t handle;
  EXPECT_EQ(cudaIpcGetEventHandle(&handle, timed), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(timed), cudaSuccess);
}

TEST_F(CudaIpc, CountsOfAnotherProcessAreReadable) {
  Exporter exporter("seed=1");
  EXPECT_EQ(fake_cuda::CountsOf(FakeFolder(), exporter.process().pid())["cudaMalloc"], 1u);
  exporter.process().Signal(SIGKILL);
  EXPECT_TRUE(exporter.process().WaitExit().has_value());
  EXPECT_EQ(fake_cuda::CountsOf(FakeFolder(), exporter.process().pid())["allocations"], 1u);
}

}  // namespace
}  // namespace kvtriage
