// Handles of device memory: opened once, counted, and what each way of not opening gets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "service/memory/cuda_handles.h"
#include "tests/unit/memory/cuda_lender.h"

namespace kvtriage {
namespace {

using CudaHandlesOf = CudaLending;

TEST_F(CudaHandlesOf, TheDeviceIsDescribed) {
  Begin("devices=2 memory=4096000000");
  ASSERT_EQ(devices_->size(), 2u);
  const DeviceFacts& facts = device(2).facts();
  EXPECT_EQ(facts.ordinal, 1);
  EXPECT_EQ(facts.uuid, "GPU-6b767472-6961-6765-2d66-616b652d6401");
  EXPECT_EQ(facts.name, "fake device 1");
  EXPECT_EQ(facts.compute_capability, 90u);
  EXPECT_EQ(facts.memory_bytes, 4096000000u);
  EXPECT_EQ(facts.driver_version, 13000u);
}

TEST_F(CudaHandlesOf, NoDeviceSaysSo) {
  EXPECT_TRUE(fake_cuda::Script("devices=0"));
  const auto devices = ListCudaDevices();
  EXPECT_EQ(ReasonOf(devices.status()), "no_device");
}

TEST_F(CudaHandlesOf, ADeviceThatDoesNotStartIsRefused) {
  EXPECT_TRUE(fake_cuda::Script("cudaMemGetInfo@1:error=2"));
  const auto facts = ListCudaDevices();
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(ReasonOf(OpenCudaDevice((*facts)[0], nullptr).status()), "device_memory");
}

TEST_F(CudaHandlesOf, AreOpenedOnceAndClosedWithTheLastRegion) {
  Begin();
  const auto two = lender_->Register(Of({Part(exporter_, 0, 1024), Part(exporter_, 1024, 3072)}));
  const auto third = lender_->Register(Of({Whole()}));
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(Count("cudaIpcOpenMemHandle"), 1u);
  EXPECT_EQ(Count("mappings"), 1u);
  EXPECT_EQ(lender_->observer().mapped, 2 * kExported);
  EXPECT_EQ(lender_->UnregisterIds(two->region_ids)->closed, 2u);
  EXPECT_EQ(Count("mappings"), 1u);
  EXPECT_EQ(lender_->UnregisterIds(third->region_ids)->closed, 1u);
  EXPECT_EQ(Count("mappings"), 0u) << "closed when the answer comes: the worker may free";
  EXPECT_EQ(Count("cudaIpcCloseMemHandle"), 1u);
  lender_->Settle();
  EXPECT_EQ(lender_->observer().mapped, 0u);
}

TEST_F(CudaHandlesOf, APinKeepsTheMemoryOpen) {
  Begin();
  const auto ids = lender_->Register(Of({Whole()}));
  ASSERT_TRUE(ids.ok()) << ids.status();
  RegionPin pin = (*lender_)->Pin(ids->region_ids[0]).value();
  EXPECT_EQ(pin.memory(), 1u);
  EXPECT_EQ(ReasonOf(lender_->UnregisterIds(ids->region_ids, 20).status()), "region_retiring");
  EXPECT_EQ(Count("mappings"), 1u);
  const std::string first = FirstBytes();
  EXPECT_EQ(std::memcmp(Read(pin, 4).data(), first.data(), 4), 0);
  pin = RegionPin();
  EXPECT_TRUE(lender_->UnregisterIds(ids->region_ids).ok());
  EXPECT_EQ(Count("mappings"), 0u);
}

TEST_F(CudaHandlesOf, AnotherGenerationIsStale) {
  Begin();
  const auto ids = lender_->Register(Of({Whole()}));
  ASSERT_TRUE(ids.ok()) << ids.status();
  RegionRequest newer = Whole();
  newer.cuda->generation = 2;
  EXPECT_EQ(Refusal(Of({newer})), "stale_generation regions[0].cuda_ipc.generation");
  EXPECT_TRUE(lender_->UnregisterIds(ids->region_ids).ok());
  EXPECT_TRUE(lender_->Register(Of({newer})).ok());
}

// Sources: https://github.com/kvcache-ai/Mooncake/issues/3546 and the reports of byte-equal
// handles.
TEST_F(CudaHandlesOf, AFreedAllocationWithTheSameHandleIsToldApart) {
  Begin();
  const auto ids = lender_->Register(Of({Whole()}));
  ASSERT_TRUE(ids.ok()) << ids.status();
  const std::string before = exporter_.handle();
  ASSERT_EQ(exporter_.Tell("free"), "freed");
  ASSERT_EQ(exporter_.Tell("again"), before);
  ASSERT_EQ(exporter_.Tell("set 7"), "set");
  RegionRequest newer = Whole();
  newer.cuda->generation = 2;
  newer.fingerprint = FirstBytes(7);
  EXPECT_EQ(Refusal(Of({newer})), "stale_generation regions[0].cuda_ipc.generation");
  EXPECT_TRUE(lender_->UnregisterIds(ids->region_ids).ok());
  EXPECT_TRUE(lender_->Register(Of({newer})).ok());
}

TEST_F(CudaHandlesOf, AnotherSessionsMemoryIsInUse) {
  Begin();
  Lender other(MemoryQuota(), &lender_->mapper(), &*devices_);
  const auto ids = other.Register(Of({Whole()}));
  ASSERT_TRUE(ids.ok()) << ids.status();
  absl::Status refused = lender_->Register(Of({Whole()})).status();
  EXPECT_EQ(ReasonOf(refused), "handle_in_use");
  EXPECT_EQ(FieldOf(refused), "regions[0].cuda_ipc.handle");
  EXPECT_EQ(GetErrorInfo(refused)->retry_after_ms, 0u);
  // It is given back, but a job still reads it.
  RegionPin pin = other->Pin(ids->region_ids[0]).value();
  EXPECT_EQ(ReasonOf(other.UnregisterIds(ids->region_ids, 1).status()), "region_retiring");
  refused = lender_->Register(Of({Whole()})).status();
  EXPECT_EQ(ReasonOf(refused), "handle_in_use");
  EXPECT_GT(GetErrorInfo(refused)->retry_after_ms, 0u);
  pin = RegionPin();
  EXPECT_TRUE(other.UnregisterIds(ids->region_ids).ok());
  EXPECT_TRUE(lender_->Register(Of({Whole()})).ok());
}

TEST_F(CudaHandlesOf, OurOwnPidIsRefusedBeforeTheDriverIsAsked) {
  Begin();
  RegionRequest own = Whole();
  own.cuda->exporter_pid = static_cast<uint32_t>(::getpid());
  EXPECT_EQ(Refusal(Of({own})), "pid_collision regions[0].cuda_ipc.exporter_pid");
  EXPECT_EQ(Count("cudaIpcOpenMemHandle"), 0u);
}

TEST_F(CudaHandlesOf, EveryErrorOfOpeningHasItsReason) {
  struct Row {
    int code;
    const char* refusal;
  };
  Begin();
  for (const Row& row : std::vector<Row>{
           {1, "map_failed regions[0].cuda_ipc.handle"},
           {2, "device_memory regions[0].cuda_ipc.handle"},
           {201, "pid_collision regions[0].cuda_ipc.exporter_pid"},
           {205, "map_failed regions[0].cuda_ipc.handle"},
           {208, "internal regions[0].cuda_ipc.handle"},
           {217, "peer_unsupported regions[0].cuda_ipc.device_uuid"},
           {400, "map_failed regions[0].cuda_ipc.handle"},
           {711, "peer_unsupported regions[0].cuda_ipc.device_uuid"},
           {801, "map_failed regions[0].cuda_ipc.handle"},
       }) {
    SCOPED_TRACE(row.code);
    ASSERT_TRUE(fake_cuda::Script("cudaIpcOpenMemHandle@1:error=" + std::to_string(row.code)));
    EXPECT_EQ(Refusal(Of({Whole()})), row.refusal);
    EXPECT_TRUE(lender_->Register(Of({Whole()})).ok()) << "the error was not kept";
    UnregisterSpec everything;
    everything.everything = true;
    ASSERT_TRUE(lender_->Unregister(everything).ok());
  }
  EXPECT_EQ(lost_, 0);
}

TEST_F(CudaHandlesOf, ADeadExporterAndAFreedAllocation) {
  Begin("dead=205");
  Exporter other;
  ASSERT_EQ(other.Tell("free"), "freed");
  EXPECT_EQ(Refusal(Of({Part(other)})), "map_failed regions[0].cuda_ipc.handle");
  exporter_.process().Signal(SIGKILL);
  ASSERT_TRUE(exporter_.process().WaitExit().has_value());
  EXPECT_EQ(Refusal(Of({Whole()})), "map_failed regions[0].cuda_ipc.handle");
}

TEST_F(CudaHandlesOf, OpenMemoryOutlivesItsExporter) {
  Begin();
  const auto ids = lender_->Register(Of({Whole()}));
  ASSERT_TRUE(ids.ok()) << ids.status();
  exporter_.process().Signal(SIGKILL);
  ASSERT_TRUE(exporter_.process().WaitExit().has_value());
  const std::string first = FirstBytes();
  EXPECT_EQ(
      std::memcmp(Read((*lender_)->Pin(ids->region_ids[0]).value(), 4).data(), first.data(), 4), 0);
}

TEST_F(CudaHandlesOf, AnAllocationSmallerThanSaidIsClosedAgain) {
  Begin();
  RegionRequest larger = Part(exporter_, 0, kExported + 1);
  larger.cuda->allocation_bytes = kExported + 1;
  EXPECT_EQ(Refusal(Of({larger})), "map_failed regions[0].cuda_ipc.allocation_bytes");
  EXPECT_EQ(Count("cudaIpcCloseMemHandle"), 1u);
  // Also when it is open already.
  EXPECT_TRUE(lender_->Register(Of({Whole()})).ok());
  EXPECT_EQ(Refusal(Of({larger})), "map_failed regions[0].cuda_ipc.allocation_bytes");
}

TEST_F(CudaHandlesOf, AnErrorOfTheLookUpClosesAgain) {
  Begin("cuMemGetAddressRange@1:error=1");
  EXPECT_EQ(Refusal(Of({Whole()})), "map_failed regions[0].cuda_ipc.handle");
  EXPECT_EQ(Count("cudaIpcCloseMemHandle"), 1u);
}

TEST_F(CudaHandlesOf, TheFingerprintIsReadFromTheDevice) {
  Begin();
  RegionRequest region = Whole();
  region.fingerprint = FirstBytes(43);
  EXPECT_EQ(Refusal(Of({region})), "fingerprint_mismatch regions[0].fingerprint");
  region.fingerprint = FirstBytes();
  EXPECT_TRUE(lender_->Register(Of({region})).ok());
  // A forgotten offset: the part begins elsewhere.
  region.cuda->base_offset = 512;
  region.size = 512;
  EXPECT_EQ(Refusal(Of({region})), "fingerprint_mismatch regions[0].fingerprint");
}

TEST_F(CudaHandlesOf, ADeviceThatIsLostIsTold) {
  Begin("cudaIpcOpenMemHandle@1:sticky=700");
  EXPECT_EQ(Refusal(Of({Whole()})), "device_lost regions[0].cuda_ipc.handle");
  EXPECT_EQ(Refusal(Of({Whole()})), "device_lost regions[0].cuda_ipc.handle");
  EXPECT_EQ(lost_, 1);
}

TEST_F(CudaHandlesOf, AnErrorThatComesAgainIsALoss) {
  Begin("cudaIpcOpenMemHandle@1:sticky=205");
  EXPECT_EQ(Refusal(Of({Whole()})), "map_failed regions[0].cuda_ipc.handle");
  EXPECT_EQ(lost_, 1);
}

TEST_F(CudaHandlesOf, SlowOpeningHoldsUpNobodyElse) {
  Begin("cudaIpcOpenMemHandle@1:wait=400");
  std::promise<std::string> slow;
  (*lender_)->Register(Of({Whole()}), [&](auto ids) { slow.set_value(ReasonOf(ids.status())); });
  EXPECT_TRUE(WaitUntil([&] { return device().mapper().BusyMs() > 20; })) << "the watchdog sees it";
  const UniqueFd fd = MakeLentMemfd(kPage);
  EXPECT_TRUE(lender_->RegisterOne(fd, kPage).ok());
  EXPECT_EQ(lender_->mapper().BusyMs(), 0u);
  EXPECT_EQ(slow.get_future().get(), "ok");
}

}  // namespace
}  // namespace kvtriage
