// The C++ client on device memory, from process to process: the example worker and the doctor on
// the stand-in's device, beside a kvtriaged_emulated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "kvtriage/device_memory.h"
#include "kvtriage/session.h"
#include "nlohmann/json.hpp"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/service_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged_emulated";
constexpr char kDoctor[] = KVTRIAGE_BIN_DIR "/kvtriage_emulated";
constexpr char kExample[] = KVTRIAGE_BIN_DIR "/kvtriage_cuda_example_emulated";

struct Ran {
  int exit = -1;
  std::string out, error;
};

class CudaClient : public testing::Test {
 protected:
  CudaClient() {
    static const TempDir folder;  // of this "machine"
    folder_ = folder.path();
    setenv("KVTRIAGE_FAKE_CUDA", folder_.c_str(), 1);
    EXPECT_TRUE(fake_cuda::Script(""));
  }

  void Start(const std::string& script = "", const std::vector<std::string>& flags = {}) {
    setenv("KVTRIAGE_FAKE_CUDA_SCRIPT", script.c_str(), 1);
    ASSERT_TRUE(service_.Start(flags));
    unsetenv("KVTRIAGE_FAKE_CUDA_SCRIPT");
  }
  static Ran Run(const std::string& program, std::vector<std::string> arguments,
                 const std::string& script) {
    const auto child = ChildProcess::Start(
        program, {std::move(arguments), {"KVTRIAGE_FAKE_CUDA_SCRIPT=" + script}, "", ""});
    if (child == nullptr) return {};
    const int exit = child->WaitExit(60'000).value_or(-1);
    return {exit, child->Output(), child->ErrorOutput()};
  }
  // The doctor's exit code and its last step, of device memory.
  std::pair<int, Json> Doctor(const std::string& script, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"doctor", "--json", "--endpoint", service_.endpoint()});
    const Ran ran = Run(kDoctor, more, script);
    const Json report = Json::parse(ran.out, nullptr, false);
    if (!report.is_object()) return {ran.exit, Json{{"text", ran.out + ran.error}}};
    EXPECT_EQ(report["steps"].size(), 6u);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(report["steps"][i]["state"], "ok") << ran.out;
    EXPECT_EQ(report["ok"], ran.exit == 0);
    return {ran.exit, report["steps"].back()};
  }
  void ExpectFailure(const std::string& script, const std::string& word,
                     const std::string& advice) {
    const auto [exit, step] = Doctor(script);
    EXPECT_EQ(exit, 1);
    EXPECT_EQ(step["step"], "device memory");
    EXPECT_EQ(step["state"], "failed") << step;
    EXPECT_EQ(step["word"], word) << step;
    EXPECT_THAT(std::string(step["advice"]), HasSubstr(advice));
  }
  uint64_t OpenInService() {
    return fake_cuda::CountsOf(folder_, service_.process().pid())["mappings"];
  }

  std::string folder_;
  ServiceProcess service_{kServiceProgram};
};

TEST_F(CudaClient, TheExampleMovesItsRowsWhole) {
  Start();
  const Ran ran = Run(kExample, {service_.endpoint()}, "");
  EXPECT_EQ(ran.exit, 0) << ran.error;
  EXPECT_EQ(ran.out,
            "applied\nfake device 0: 48 tokens, 16 rows now, next position 48\n"
            "0 rows with wrong bytes\n");
  EXPECT_GT(*service_.Metric("kvtriage_moved_bytes_total", "device=\"cuda:0\""), 0);
  EXPECT_EQ(OpenInService(), 0u);
}

TEST_F(CudaClient, TheExampleSaysThatThereIsNoDevice) {
  const Ran ran = Run(kExample, {"/nonexistent/kvtriage.sock"}, "devices=0");
  EXPECT_EQ(ran.exit, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("no CUDA device here"));
}

TEST_F(CudaClient, DoctorFindsEveryDeviceHealthy) {
  Start("devices=2");
  const auto [exit, step] = Doctor("devices=2");
  EXPECT_EQ(exit, 0) << step;
  EXPECT_EQ(step["state"], "ok");
  EXPECT_THAT(std::string(step["text"]), HasSubstr("fake device 0"));
  EXPECT_THAT(std::string(step["text"]),
              HasSubstr("fake device 1 (GPU-6b767472-6961-6765-2d66-616b652d6401): 1024 KiB"));
  EXPECT_EQ(OpenInService(), 0u) << "it takes everything back";
}

TEST_F(CudaClient, DoctorSkipsWhatThisProcessLacks) {
  Start();
  const auto [exit, step] = Doctor("devices=0");
  EXPECT_EQ(exit, 0);
  EXPECT_EQ(step["state"], "skipped");
  EXPECT_THAT(std::string(step["text"]), HasSubstr("none here"));
}

TEST_F(CudaClient, DoctorNamesAServiceWithoutADevice) {
  Start("devices=0");
  ExpectFailure("", "no_device", "start a kvtriaged with CUDA");
  const Ran host = Run(kDoctor, {"doctor", "--host-only", "--endpoint", service_.endpoint()}, "");
  EXPECT_EQ(host.exit, 0) << host.out;
  EXPECT_THAT(host.out, Not(HasSubstr("device memory")));
}

TEST_F(CudaClient, DoctorNamesADeviceThatTheServiceDoesNotSee) {
  Start("devices=1");
  ExpectFailure("devices=2", "gpu_not_visible", "CUDA_VISIBLE_DEVICES");
}

TEST_F(CudaClient, DoctorNamesMemoryWithoutAHandle) {
  Start();
  ExpectFailure("cudaMalloc@0:kind=vmm", "vmm_memory", "expandable_segments");
  ExpectFailure("cudaMalloc@0:kind=pool", "vmm_memory", "pool");
}

// What the driver says when two PID namespaces have given both sides the same number.
TEST_F(CudaClient, DoctorNamesEqualPidNumbers) {
  Start("cudaIpcOpenMemHandle@0:error=201");
  ExpectFailure("", "pid_collision", "PID namespace");
}

TEST_F(CudaClient, DoctorNamesWhatTheDriverDoesNotMap) {
  Start("cudaIpcOpenMemHandle@1:error=205;cudaIpcOpenMemHandle@2:error=2");
  ExpectFailure("", "map_failed", "device files");
  ExpectFailure("", "device_memory", "arena_bytes");
}

TEST_F(CudaClient, DoctorDoesNotWaitForADeviceThatHangs) {
  Start();
  const auto [exit, step] = Doctor("cudaMalloc@1:hang", {"--timeout", "6"});
  EXPECT_EQ(exit, 1);
  EXPECT_EQ(step["word"], "cuda_silent") << step;
}

TEST_F(CudaClient, DoctorShowsTheAdvice) {
  Start("cudaIpcOpenMemHandle@0:error=201");
  const Ran ran = Run(kDoctor, {"doctor", "--endpoint", service_.endpoint()}, "");
  EXPECT_EQ(ran.exit, 1);
  EXPECT_THAT(ran.out, HasSubstr("\ndevice memory: service and worker have the same PID number"));
}

// A client in this process, over a service that is killed while it holds the memory.
TEST_F(CudaClient, LentMemoryOutlivesItsOwnerAndTheService) {
  Start();
  client::ConnectOptions options;
  options.endpoint = service_.endpoint();
  auto session = client::Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  client::Region region;
  {
    const auto memory = client::DeviceMemory::Create(0, 8192);
    ASSERT_TRUE(memory->Write(0, std::vector<std::byte>(8192, std::byte{7})).ok());
    const auto lent = (*session)->Register({{*memory->Lend(4096, 4096)}, {}});
    ASSERT_TRUE(lent.ok()) << lent.status();
    region = lent->regions[0];
  }
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 0u);
  const auto sum = (*session)->Checksum(region, 0, 4096);
  ASSERT_TRUE(sum.ok()) << sum.status();
  service_.process().Signal(SIGKILL);
  service_.process().WaitExit();
  ASSERT_TRUE(service_.Start());
  ASSERT_TRUE((*session)->WaitAlive(20'000));
  // Registered again by itself, without the fingerprint of bytes that may have changed.
  ASSERT_TRUE(WaitUntil([&] { return (*session)->Checksum(region, 0, 4096).ok(); }));
  EXPECT_EQ(*(*session)->Checksum(region, 0, 4096), *sum);
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 0u);
  ASSERT_TRUE((*session)->Unregister({region}, {}).ok());
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 1u);
}

TEST_F(CudaClient, TheEndOfASessionTakesMemoryBackFirst) {
  Start();
  client::ConnectOptions options;
  options.endpoint = service_.endpoint();
  auto session = client::Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(
      (*session)->Register({{*client::DeviceMemory::Create(0, 4096)->Lend(0, 4096)}, {}}).ok());
  EXPECT_EQ(OpenInService(), 1u);
  session->reset();
  EXPECT_EQ(OpenInService(), 0u);
  EXPECT_EQ(fake_cuda::Counts()["cudaFree"], 1u);
}

}  // namespace
}  // namespace kvtriage
