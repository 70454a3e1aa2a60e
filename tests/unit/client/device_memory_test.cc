// Lending device memory: what is found about a pointer, what is refused before anything is sent,
// and how long lent memory lives. On the stand-in's device.
#include "kvtriage/device_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "client/cpp/cache_to_proto.h"
#include "client/cpp/memory_book.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_api.h"
#include "kvtriage/error_details.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/temp_dir.h"

namespace kvtriage::client {
namespace {

using ::testing::HasSubstr;

std::string Word(const absl::Status& status) {
  const auto details = GetErrorDetails(status);
  return details.has_value() ? details->reason : status.ToString();
}

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() {
    static const TempDir folder;
    static const bool set = setenv("KVTRIAGE_FAKE_CUDA", folder.path().c_str(), 1) == 0;
    EXPECT_TRUE(set);
    EXPECT_TRUE(fake_cuda::Script("devices=2"));
  }

  static std::vector<std::byte> Counting(uint64_t bytes) {
    std::vector<std::byte> content(bytes);
    for (uint64_t i = 0; i < bytes; ++i) content[i] = static_cast<std::byte>(i * 7 + 3);
    return content;
  }
};

TEST_F(DeviceMemoryTest, ListsDevicesByUuid) {
  const auto devices = ListCudaDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].uuid, "GPU-6b767472-6961-6765-2d66-616b652d6401");
  EXPECT_EQ((*devices)[1].name, "fake device 1");
  ASSERT_TRUE(fake_cuda::Script("devices=0"));
  EXPECT_EQ(Word(ListCudaDevices().status()), "no_device");
  EXPECT_EQ(Word(DeviceMemory::Create(0, 64).status()), "no_device");
}

// An engine's tensor lies somewhere in an allocation: the driver says where.
TEST_F(DeviceMemoryTest, FindsBaseOffsetAndSizeOfAPointer) {
  const auto memory = DeviceMemory::Create(1, 5000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::vector<std::byte> content = Counting(5000);
  ASSERT_TRUE(memory->Write(0, content).ok());
  const auto spec = memory->Lend(1234, 700, Access::kRead, 9);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->fd, -1);
  EXPECT_EQ(spec->offset, 1234u);
  EXPECT_EQ(spec->size, 700u);
  EXPECT_EQ(spec->access, Access::kRead);
  EXPECT_EQ(spec->tag, 9u);
  EXPECT_EQ(spec->cuda->bytes, 5000u);
  EXPECT_EQ(spec->cuda->device_uuid, "GPU-6b767472-6961-6765-2d66-616b652d6401");
  ASSERT_TRUE(spec->fingerprint.has_value());
  EXPECT_EQ(spec->fingerprint->offset, 0u);
  ASSERT_EQ(spec->fingerprint->expected.size(), 64u);
  EXPECT_EQ(std::memcmp(spec->fingerprint->expected.data(), content.data() + 1234, 64), 0);
  // The bytes of the allocation's base, wherever the pointer was.
  EXPECT_EQ(memory->Lend(0, 1)->cuda->handle, spec->cuda->handle);
  EXPECT_EQ(memory->Lend(0, 1)->fingerprint->expected.size(), 1u);
}

TEST_F(DeviceMemoryTest, TheMessageSaysWhoseMemoryItIs) {
  const auto memory = DeviceMemory::Create(0, 4096);
  const auto spec = memory->Lend(256, 512);
  const v1::RegionSpec message = ToProto(*spec, 77, true);
  ASSERT_TRUE(message.has_cuda_ipc());
  EXPECT_EQ(message.cuda_ipc().handle().size(), 64u);
  EXPECT_EQ(message.cuda_ipc().base_offset(), 256u);
  EXPECT_EQ(message.cuda_ipc().allocation_bytes(), 4096u);
  EXPECT_EQ(message.cuda_ipc().exporter_pid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(message.cuda_ipc().generation(), spec->cuda->generation);
  EXPECT_EQ(message.fingerprint().expected().size(), 64u);
  EXPECT_EQ(message.size(), 512u);
  EXPECT_TRUE(ToProto(*memory->Lend(0, 512), 0, true).cuda_ipc().has_base_offset()) << "0 is said";
  EXPECT_FALSE(ToProto(*spec, 0, false).has_fingerprint());
}

TEST_F(DeviceMemoryTest, KindsWithoutAHandleAreNamedWithTheSettingToChange) {
  const std::vector<std::pair<std::string, std::string>> kinds = {{"vmm", "expandable_segments"},
                                                                  {"pool", "cudaMallocAsync"},
                                                                  {"managed", "cudaMallocManaged"}};
  for (const auto& [kind, setting] : kinds) {
    SCOPED_TRACE(kind);
    ASSERT_TRUE(fake_cuda::Script("cudaMalloc@1:kind=" + kind));
    const auto memory = DeviceMemory::Create(0, 4096);
    const absl::Status refused = memory->Lend(0, 64).status();
    EXPECT_EQ(Word(refused), "vmm_memory");
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(GetErrorDetails(refused)->unharmed);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(setting));
    EXPECT_EQ(fake_cuda::Counts()["cudaIpcGetMemHandle"], 0u) << "the driver is not tried";
  }
}

TEST_F(DeviceMemoryTest, WhatIsNotDeviceMemoryIsRefused) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  char stack[64];
  EXPECT_EQ(Word(LendDeviceMemory(stack, 64).status()), "bad_argument");
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 64, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(Word(LendDeviceMemory(pinned, 64).status()), "bad_argument");
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  const auto memory = DeviceMemory::Create(0, 100);
  EXPECT_EQ(Word(LendDeviceMemory(memory->data() + 1, 100).status()), "bad_argument");
  EXPECT_EQ(Word(LendDeviceMemory(memory->data(), 0).status()), "bad_argument");
  EXPECT_EQ(Word(memory->Lend(101, UINT64_MAX).status()), "bad_argument");
  EXPECT_EQ(Word(memory->Write(1, std::vector<std::byte>(100))), "bad_argument");
  std::vector<std::byte> to(101);
  EXPECT_EQ(Word(memory->Read(0, to)), "bad_argument");
  EXPECT_EQ(Word(DeviceMemory::Create(0, 0).status()), "bad_argument");
}

TEST_F(DeviceMemoryTest, CudasErrorsAreNumbersAndLeaveNoTrace) {
  ASSERT_TRUE(fake_cuda::Script("memory=4096 cudaIpcGetMemHandle@1:error=801"));
  EXPECT_EQ(Word(DeviceMemory::Create(0, 1 << 20).status()), "device_memory");
  ASSERT_TRUE(fake_cuda::Script("cudaIpcGetMemHandle@1:error=801 cudaIpcGetMemHandle@2:error=999"));
  const auto memory = DeviceMemory::Create(0, 64);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(Word(memory->Lend(0, 64).status()), "vmm_memory");
  const absl::Status unknown = memory->Lend(0, 64).status();
  EXPECT_EQ(Word(unknown), "cuda_call");
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("999"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the engine's next check would find it";
}

// A new allocation may get the handle bytes of a freed one: the generation tells them apart.
TEST_F(DeviceMemoryTest, EveryAllocationHasAGenerationOfItsOwn) {
  auto memory = DeviceMemory::Create(0, 4096);
  const CudaAllocation first = *memory->Lend(0, 64)->cuda, again = *memory->Lend(128, 64)->cuda;
  EXPECT_EQ(first.generation, again.generation);
  EXPECT_GT(first.generation, 0u);
  memory = absl::CancelledError();  // freed
  memory = DeviceMemory::Create(0, 4096);
  const CudaAllocation second = *memory->Lend(0, 64)->cuda;
  EXPECT_EQ(second.handle, first.handle) << "the stand-in makes the trap on purpose";
  EXPECT_NE(second.generation, first.generation);
}

TEST_F(DeviceMemoryTest, TheBookKeepsWhatIsLent) {
  MemoryBook book;
  Region region;
  {
    const auto memory = DeviceMemory::Create(0, 4096);
    const absl::StatusOr<Lot> lot = book.Prepare({*memory->Lend(0, 64)}, {});
    ASSERT_TRUE(lot.ok()) << lot.status();
    region = lot->regions[0].region;
    book.Enter(*lot);
  }
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 0u);
  EXPECT_TRUE(book.HoldsOwners());
  // On another thread: whoever learns of the end may never have touched CUDA.
  std::thread([&] { book.Remove({region}, {}); }).join();
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 1u);
  EXPECT_FALSE(book.HoldsOwners());
}

TEST_F(DeviceMemoryTest, AbandonedMemoryIsNeverFreed) {
  {
    MemoryBook book;
    book.Enter(*book.Prepare({*DeviceMemory::Create(0, 4096)->Lend(0, 64)}, {}));
    book.AbandonOwners();
    EXPECT_FALSE(book.HoldsOwners());
  }
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 0u);
}

}  // namespace
}  // namespace kvtriage::client
