// The service on device memory, from process to process: this program exports allocations of the
// stand-in's device, kvtriaged_emulated opens them and runs the CUDA kernels on them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "service/rpc/memory_prober.h"
#include "tests/integration/cuda_lender.h"
#include "tests/integration/raw_worker.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/service_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

using ::testing::HasSubstr;

constexpr char kProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged_emulated";
constexpr uint64_t kRowBytes = RawWorker::kElems * 4;

// The folder of this "machine": read once, at the stand-in's first call.
const std::string& Folder() {
  static const TempDir folder;
  static const bool set = setenv("KVTRIAGE_FAKE_CUDA", folder.path().c_str(), 1) == 0;
  EXPECT_TRUE(set);
  return folder.path();
}

std::vector<int32_t> Int32s(const std::string& bytes) {
  std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class CudaService : public testing::Test {
 protected:
  CudaService() {
    Folder();
    EXPECT_TRUE(fake_cuda::Script(""));
  }

  void Start(const std::string& script = "", const std::vector<std::string>& flags = {}) {
    setenv("KVTRIAGE_FAKE_CUDA_SCRIPT", script.c_str(), 1);
    ASSERT_TRUE(service_.Start(flags));
    unsetenv("KVTRIAGE_FAKE_CUDA_SCRIPT");
  }
  std::unique_ptr<RawWorker> Bound() {
    auto worker = std::make_unique<RawWorker>(service_.endpoint());
    EXPECT_TRUE(worker->Attach());
    EXPECT_EQ(worker->Bind(), "ok");
    return worker;
  }
  uint64_t OpenInService() {
    return fake_cuda::CountsOf(Folder(), service_.process().pid())["mappings"];
  }

  ServiceProcess service_{kProgram};
};

TEST_F(CudaService, SaysWhichDevicesItServes) {
  Start("devices=2 memory=1234567890");
  RawWorker worker(service_.endpoint());
  ASSERT_TRUE(worker.Attach());
  const v1::Welcome& welcome = worker.welcome();
  ASSERT_EQ(welcome.devices_size(), 3);
  EXPECT_EQ(welcome.devices(0).kind(), v1::Device::KIND_CPU);
  const v1::Device& device = welcome.devices(2);
  EXPECT_EQ(device.kind(), v1::Device::KIND_CUDA);
  EXPECT_EQ(device.uuid(), "GPU-6b767472-6961-6765-2d66-616b652d6401");
  EXPECT_EQ(device.name(), "fake device 1");
  EXPECT_EQ(device.compute_capability(), 90u);
  EXPECT_EQ(device.memory_bytes(), 1234567890u);
  EXPECT_EQ(device.cuda_driver_version(), 13000u);
  EXPECT_EQ(device.health(), v1::Device::HEALTH_OK);
  EXPECT_THAT(welcome.features(), testing::Contains(v1::FEATURE_CUDA));
  EXPECT_EQ(service_.Metric("kvtriage_queue_limit_jobs", "device=\"cuda:1\""), 256);
}

TEST_F(CudaService, AMachineWithoutADeviceIsServedOnTheHost) {
  Start("devices=0");
  EXPECT_THAT(service_.Log(), HasSubstr("no_cuda_device"));
  const auto worker = Bound();
  EXPECT_TRUE(worker->Lend().ok());
  const CudaLender lender;
  EXPECT_EQ(ReasonOf(worker->LendIn(lender.Region())), "no_device");
}

TEST_F(CudaService, BackendCudaDoesNotStartWithoutADevice) {
  setenv("KVTRIAGE_FAKE_CUDA_SCRIPT", "devices=0", 1);
  const TempDir directory;
  const auto process = ChildProcess::Start(
      kProgram, {.arguments = {"--listen.uds=" + directory.File("kvtriage.sock"),
                               "--listen.metrics=127.0.0.1:0", "--backend=cuda"},
                 .environment = {"KVTRIAGE_FAKE_CUDA_SCRIPT=devices=0"}});
  unsetenv("KVTRIAGE_FAKE_CUDA_SCRIPT");
  EXPECT_EQ(process->WaitExit(), 1);
  EXPECT_THAT(process->ErrorOutput(), HasSubstr("CUDA shows no device"));
}

// The same rows as the CPU backend keeps, on the same numbers; they and no other bytes move.
TEST_F(CudaService, CompressesAsTheHostDoes) {
  Start();
  const auto host = Bound(), device = Bound();
  ASSERT_TRUE(host->Lend().ok());
  const CudaLender lender;
  const std::vector<std::byte> before = lender.Bytes();
  const grpc::Status lent = device->LendIn(lender.Region());
  ASSERT_EQ(ReasonOf(lent), "ok") << lent.error_message();
  for (const uint32_t kept : {12u, 24u}) {
    SCOPED_TRACE(kept);
    v1::CompressResponse expected, found;
    ASSERT_EQ(ReasonOf(host->Compress(host->AttentionRequest(kept, 48, kept), &expected)), "ok");
    const grpc::Status status = device->Compress(device->AttentionRequest(kept, 48, kept), &found);
    ASSERT_EQ(ReasonOf(status), "ok") << status.error_message();
    EXPECT_EQ(Int32s(found.results(0).kept_sets().indices_le()),
              Int32s(expected.results(0).kept_sets().indices_le()));
    ASSERT_EQ(found.quality_size(), expected.quality_size());
    for (int i = 0; i < found.quality_size(); ++i) {
      EXPECT_NEAR(found.quality(i).mass_mean(), expected.quality(i).mass_mean(), 1e-4);
      EXPECT_NEAR(found.quality(i).error(), expected.quality(i).error(), 1e-3);
    }
  }
  EXPECT_EQ(lender.Bytes() == before, true) << "selecting writes nothing";
}

TEST_F(CudaService, MovesTheKeptRowsAndNothingElse) {
  Start();
  const auto device = Bound();
  const CudaLender lender;
  const std::vector<std::byte> before = lender.Bytes();
  ASSERT_EQ(ReasonOf(device->LendIn(lender.Region())), "ok");
  v1::CompressRequest request = device->AttentionRequest(1, 48, 16);
  request.clear_measure();
  request.mutable_act()->mutable_in_place()->set_ledger_slot(0);
  v1::CompressResponse response;
  const grpc::Status status = device->Compress(request, &response);
  ASSERT_EQ(ReasonOf(status), "ok") << status.error_message();
  const std::vector<int32_t> kept = Int32s(response.results(0).kept_sets().indices_le());
  const std::vector<int32_t> counts = Int32s(response.results(0).kept_sets().counts_le());
  ASSERT_EQ(counts.size(), RawWorker::kLayers * RawWorker::kHeads);
  std::vector<std::byte> expected = before;
  uint64_t moved = 0;
  size_t first = 0;
  for (uint32_t list = 0; list < counts.size(); ++list) {
    const uint64_t layer = list / RawWorker::kHeads, head = list % RawWorker::kHeads;
    for (int32_t row = 0; row < counts[list]; ++row) {
      const auto from = static_cast<uint64_t>(kept[first + static_cast<size_t>(row)]);
      if (from == static_cast<uint64_t>(row)) continue;
      for (const uint64_t plane : {2 * layer, 2 * layer + 1}) {
        const uint64_t rows = lender.offset() + plane * RawWorker::kPlaneBytes +
                              head * RawWorker::kCapacity * kRowBytes;
        std::memcpy(expected.data() + rows + static_cast<uint64_t>(row) * kRowBytes,
                    before.data() + rows + from * kRowBytes, kRowBytes);
        moved += kRowBytes;
      }
    }
    first += static_cast<size_t>(counts[list]);
  }
  EXPECT_EQ(lender.Bytes() == expected, true);
  EXPECT_EQ(service_.Metric("kvtriage_moved_bytes_total", "device=\"cuda:0\""), moved);
  EXPECT_EQ(service_.Metric("kvtriage_moved_bytes_total", "device=\"cpu\""), 0);
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes", "device=\"cuda:0\""), RawWorker::kRegionBytes);
}

TEST_F(CudaService, ProbesDeviceMemory) {
  Start();
  const auto device = Bound();
  const CudaLender lender;
  ASSERT_EQ(ReasonOf(device->LendIn(lender.Region())), "ok");
  v1::ProbeMemoryRequest request;
  request.set_region_id(device->region_id());
  request.set_offset(8);
  request.set_length(1003);
  request.set_op(v1::ProbeMemoryRequest::OP_CHECKSUM);
  v1::ProbeMemoryResponse response;
  const auto stub = v1::AdminService::NewStub(device->channel());
  ASSERT_TRUE(stub->ProbeMemory(device->Context().get(), request, &response).ok());
  std::vector<std::byte> bytes = lender.Bytes();
  const std::span<std::byte> part(bytes.data() + lender.offset() + 8, 1003);
  EXPECT_EQ(response.checksum(), Fnv1a64(part));
  request.set_op(v1::ProbeMemoryRequest::OP_WRITE_PATTERN);
  request.set_seed(77);
  ASSERT_TRUE(stub->ProbeMemory(device->Context().get(), request, &response).ok());
  WritePattern(part, 77);
  EXPECT_EQ(response.checksum(), Fnv1a64(part));
  EXPECT_EQ(lender.Bytes() == bytes, true);
}

TEST_F(CudaService, UnregisteringClosesBeforeItAnswers) {
  Start();
  const auto device = Bound();
  const CudaLender lender;
  ASSERT_EQ(ReasonOf(device->LendIn(lender.Region())), "ok");
  EXPECT_EQ(OpenInService(), 1u);
  v1::ListRegionsResponse listing;
  const auto stub = v1::MemoryService::NewStub(device->channel());
  ASSERT_TRUE(stub->ListRegions(device->Context().get(), {}, &listing).ok());
  ASSERT_EQ(listing.regions_size(), 1);
  EXPECT_EQ(listing.regions(0).kind(), v1::ListRegionsResponse::Region::KIND_CUDA_IPC);
  EXPECT_EQ(ReasonOf(device->LendIn(lender.Region(2))), "stale_generation");
  v1::UnregisterRegionsRequest request;
  request.set_everything(true);
  v1::UnregisterRegionsResponse response;
  ASSERT_TRUE(stub->UnregisterRegions(device->Context().get(), request, &response).ok());
  EXPECT_EQ(response.closed(), 1u);
  EXPECT_EQ(OpenInService(), 0u);
  EXPECT_EQ(ReasonOf(device->LendIn(lender.Region(2))), "ok");
}

TEST_F(CudaService, AKilledWorkersMemoryIsClosed) {
  Start();
  const auto process = ChildProcess::Start(KVTRIAGE_TEST_BIN_DIR "/cuda_lending_worker",
                                           {.arguments = {service_.endpoint()}});
  ASSERT_TRUE(WaitUntil([&] { return process->Output() == "ok\n"; }))
      << process->Output() << process->ErrorOutput();
  EXPECT_EQ(OpenInService(), 1u);
  process->Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return OpenInService() == 0; }));
  // Nobody else sees anything of it.
  const auto other = Bound();
  const CudaLender lender;
  ASSERT_EQ(ReasonOf(other->LendIn(lender.Region())), "ok");
  v1::CompressResponse response;
  EXPECT_EQ(ReasonOf(other->Compress(other->AttentionRequest(1, 32, 8), &response)), "ok");
}

TEST_F(CudaService, AStickyErrorEndsTheProcessWithItsOwnCode) {
  Start("launch@1:sticky=700");
  const auto device = Bound();
  const CudaLender lender;
  ASSERT_EQ(ReasonOf(device->LendIn(lender.Region())), "ok");
  v1::CompressResponse response;
  const grpc::Status status = device->Compress(device->AttentionRequest(1, 48, 16), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "device_lost");
  EXPECT_EQ(DetailOf(status).cache_state(), v1::CACHE_STATE_SEE_LEDGER);
  const std::optional<v1::AttachResponse> notice = device->Read();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->notice().kind(), v1::Notice::KIND_DEVICE_SICK);
  EXPECT_EQ(service_.process().WaitExit(), 70);
  EXPECT_THAT(service_.Log(), HasSubstr("device_lost"));
}

TEST_F(CudaService, AnOpenThatNeverReturnsEndsTheProcess) {
  Start("cudaIpcOpenMemHandle@1:hang");
  const auto device = Bound();
  const CudaLender lender;
  EXPECT_EQ(device->LendIn(lender.Region()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.process().WaitExit(), 71);
}

}  // namespace
}  // namespace kvtriage
