// A test on the stand-in: device 0 is set, the script starts empty, nothing is left behind.
#ifndef KVTRIAGE_TESTS_UNIT_FAKE_CUDA_FAKE_DEVICE_H_
#define KVTRIAGE_TESTS_UNIT_FAKE_CUDA_FAKE_DEVICE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/cuda/cuda_api.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage {

// The folder of this program's "machine". The stand-in reads the environment at its first call.
inline const std::string& FakeFolder() {
  static const TempDir folder;
  static const bool set = setenv("KVTRIAGE_FAKE_CUDA", folder.path().c_str(), 1) == 0;
  EXPECT_TRUE(set);
  return folder.path();
}

class FakeDevice : public testing::Test {
 protected:
  FakeDevice() {
    FakeFolder();
    EXPECT_TRUE(fake_cuda::Script(""));
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~FakeDevice() override {
    EXPECT_TRUE(fake_cuda::Script(""));
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    cudaGetLastError();
    EXPECT_EQ(fake_cuda::Counts()["allocations"], 0u);
    EXPECT_EQ(fake_cuda::Counts()["mappings"], 0u);
  }

  void Finish(cudaStream_t stream) {
    EXPECT_TRUE(WaitUntil([&] { return cudaStreamQuery(stream) == cudaSuccess; }));
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_FAKE_CUDA_FAKE_DEVICE_H_
