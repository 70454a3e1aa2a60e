// The program: configuration, sockets, drain, exit codes.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/raw_worker.h"
#include "tests/support/child_process.h"
#include "tests/support/service_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

// One kvtriaged with its own arguments; the directory is the test's.
class Process : public ::testing::Test {
 protected:
  std::string Socket() const { return directory_.File("kvtriage.sock"); }

  std::unique_ptr<ChildProcess> Start(std::vector<std::string> flags) {
    flags.push_back("--listen.metrics=127.0.0.1:0");
    return StartPlain(std::move(flags));
  }
  std::unique_ptr<ChildProcess> StartPlain(std::vector<std::string> flags) {
    ChildProcess::Options options;
    options.arguments = {"--listen.uds=" + Socket(), "--exit-with-parent"};
    options.arguments.insert(options.arguments.end(), flags.begin(), flags.end());
    return ChildProcess::Start(kProgram, options);
  }
  static bool Started(ChildProcess& process) {
    return WaitUntil(
        [&] { return process.ErrorOutput().find("\"event\":\"started\"") != std::string::npos; });
  }

  // Runs with flags that are refused; what it says.
  std::string Refusal(std::vector<std::string> flags, int exit_code) {
    const auto process = StartPlain(std::move(flags));
    EXPECT_EQ(process->WaitExit(), exit_code);
    const std::string text = process->ErrorOutput();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    return text;
  }

  TempDir directory_;
};

TEST_F(Process, BadConfigurationEndsBeforeAnySocket) {
  const std::string file = directory_.File("kvtriage.conf");
  std::ofstream(file) << "session.max = 10\nsession.maximum = 10\n";
  EXPECT_THAT(Refusal({"--config=" + file}, 2),
              AllOf(HasSubstr(file + ":2"), HasSubstr("session.maximum")));
  EXPECT_THAT(Refusal({"--lane.queue=none"}, 2), HasSubstr("lane.queue"));
  EXPECT_THAT(Refusal({"--unknown=1"}, 2), HasSubstr("--unknown"));
  EXPECT_FALSE(std::filesystem::exists(Socket()));
  EXPECT_FALSE(std::filesystem::exists(Socket() + ".lock"));
}

TEST_F(Process, CheckConfigAgreesWithTheStart) {
  ChildProcess::Options options;
  options.arguments = {"--listen.uds=" + Socket(), "--listen.metrics=127.0.0.1:0",
                       "--policy.default=h2o",     "--session.max=9",
                       "--session.max_bound=3",    "--check-config"};
  const auto check = ChildProcess::Start(kProgram, options);
  ASSERT_EQ(check->WaitExit(), 0);
  EXPECT_FALSE(std::filesystem::exists(Socket()));
  const std::string file = directory_.File("printed.conf");
  std::ofstream(file) << check->Output();
  ChildProcess::Options from_file;
  from_file.arguments = {"--config=" + file, "--exit-with-parent"};
  const auto process = ChildProcess::Start(kProgram, from_file);
  ASSERT_TRUE(Started(*process)) << process->ErrorOutput();
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      v1::SessionService::NewStub(Connect(Socket()))->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.default_policy(), "h2o");
}

TEST_F(Process, HelpAndVersion) {
  ChildProcess::Options options;
  options.arguments = {"--help"};
  const auto help = ChildProcess::Start(kProgram, options);
  EXPECT_EQ(help->WaitExit(), 0);
  EXPECT_THAT(help->Output(), AllOf(HasSubstr("--exit-with-parent"), HasSubstr("--session.max=")));
  options.arguments = {"--version"};
  const auto version = ChildProcess::Start(kProgram, options);
  EXPECT_EQ(version->WaitExit(), 0);
  EXPECT_THAT(version->Output(), HasSubstr(KVTRIAGE_VERSION));
}

// https://github.com/jupp0r/prometheus-cpp/issues/603
// https://github.com/open-telemetry/opentelemetry-cpp/pull/1986
// https://github.com/jupp0r/prometheus-cpp/issues/565
TEST_F(Process, UnusableMetricsAddressEndsTheStart) {
  ServiceProcess other(kProgram);
  ASSERT_TRUE(other.Start());
  const std::string log = other.Log();
  const size_t begin = log.find("\"metrics\":\"") + 11;
  const std::string taken = log.substr(begin, log.find('"', begin) - begin);
  EXPECT_THAT(Refusal({"--listen.metrics=" + taken}, 1), HasSubstr(taken));
  EXPECT_THAT(Refusal({"--listen.metrics=no-such-host.invalid:1"}, 1),
              HasSubstr("no-such-host.invalid:1"));
  EXPECT_THAT(Refusal({"--listen.metrics=127.0.0.1:70000"}, 1), HasSubstr("127.0.0.1:70000"));
  EXPECT_FALSE(std::filesystem::exists(Socket())) << "no socket is left behind";
  EXPECT_NE(other.Metrics(), "") << "the owner of the port is untouched";
}

TEST_F(Process, RunsWithoutAMetricsPage) {
  const auto process = StartPlain({"--listen.metrics="});
  ASSERT_TRUE(Started(*process)) << process->ErrorOutput();
  EXPECT_EQ(HealthOf(Connect(Socket()), ""), "SERVING");
}

// https://github.com/grpc/grpc/issues/17122
// https://github.com/aquasecurity/tracee/issues/3757
// https://github.com/osrg/gobgp/pull/2486
// https://github.com/grpc/grpc/issues/17298
TEST_F(Process, SecondOwnerLeavesTheFirstAlone) {
  const auto first = Start({});
  ASSERT_TRUE(Started(*first));
  EXPECT_THAT(Refusal({"--listen.metrics="}, 1), HasSubstr(Socket()));
  EXPECT_EQ(HealthOf(Connect(Socket()), ""), "SERVING");
  first->Signal(SIGKILL);
  first->WaitExit();
  ASSERT_TRUE(std::filesystem::exists(Socket())) << "a killed one leaves its socket behind";
  const auto next = Start({});
  EXPECT_TRUE(Started(*next)) << next->ErrorOutput();
  EXPECT_EQ(HealthOf(Connect(Socket()), ""), "SERVING");
}

TEST_F(Process, OrdinaryFileInThePlaceOfASocketStays) {
  std::ofstream(Socket()) << "precious";
  EXPECT_THAT(Refusal({"--listen.metrics="}, 1), HasSubstr(Socket()));
  std::ifstream file(Socket());
  std::string text;
  file >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(Process, TooLongPathIsABadConfiguration) {
  ChildProcess::Options options;
  options.arguments = {"--listen.uds=/tmp/" + std::string(120, 'x') + ".sock"};
  const auto process = ChildProcess::Start(kProgram, options);
  EXPECT_EQ(process->WaitExit(), 2);
  EXPECT_THAT(process->ErrorOutput(), HasSubstr("107"));
}

// https://github.com/godaddy/asherah/pull/145
// https://github.com/istio/istio/issues/38428
// https://github.com/banksean/sand/issues/79
TEST_F(Process, SocketsAreForOwnerAndGroup) {
  const mode_t old = umask(022);
  const auto process = Start({});
  umask(old);
  ASSERT_TRUE(Started(*process));
  for (const char* name : {"kvtriage.sock", "kvtriage-fd.sock"}) {
    struct stat info;
    ASSERT_EQ(stat(directory_.File(name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0777, 0660u) << name;
  }
}

TEST_F(Process, OpenDirectoryIsAWarningOrWithStrictDirTheEnd) {
  const std::string open = directory_.File("open");
  std::filesystem::create_directory(open);
  ASSERT_EQ(chmod(open.c_str(), 0777), 0);
  ChildProcess::Options options;
  options.arguments = {"--listen.uds=" + open + "/k.sock",
                       "--listen.metrics=", "--exit-with-parent"};
  const auto process = ChildProcess::Start(kProgram, options);
  ASSERT_TRUE(Started(*process));
  EXPECT_THAT(process->ErrorOutput(), HasSubstr("open_directory"));
  process->Signal(SIGKILL);
  process->WaitExit();
  options.arguments.push_back("--listen.strict_dir");
  const auto strict = ChildProcess::Start(kProgram, options);
  EXPECT_EQ(strict->WaitExit(), 2);
}

TEST_F(Process, PeersThatAreNotListedAreTurnedAway) {
  const auto process = Start({"--auth.allowed_uids=4000000", "--auth.allowed_gids=4000000"});
  ASSERT_TRUE(Started(*process));
  EXPECT_EQ(HealthOf(Connect(Socket()), ""), std::to_string(grpc::StatusCode::UNAVAILABLE));
  EXPECT_TRUE(
      WaitUntil([&] { return process->ErrorOutput().find("peer_refused") != std::string::npos; }));
}

TEST_F(Process, ReflectionIsOffUnlessAskedFor) {
  // ServerReflectionRequest{list_services = 7: "*"}: one answer for the one request of the stream.
  const std::string method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  const std::string list("\x3a\x01*", 3);
  std::string response;
  const auto plain = Start({});
  ASSERT_TRUE(Started(*plain));
  EXPECT_EQ(CallRaw(Connect(Socket()), method, list, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  plain->Signal(SIGKILL);
  plain->WaitExit();
  const auto reflecting = Start({"--rpc.reflection"});
  ASSERT_TRUE(Started(*reflecting));
  const grpc::Status status = CallRaw(Connect(Socket()), method, list, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response, HasSubstr("kvtriage.v1.TriageService"));
}

TEST_F(Process, EndsWithItsParentIfAsked) {
  ChildProcess::Options options;
  options.arguments = {
      "-c", "'" + std::string(kProgram) +
                "' --exit-with-parent --drain.notice_ms=0 --listen.metrics= --listen.uds='" +
                Socket() + "' & exec sleep 1000"};
  const auto parent = ChildProcess::Start("/bin/sh", options);
  ASSERT_TRUE(Started(*parent)) << parent->ErrorOutput();
  parent->Signal(SIGKILL);
  parent->WaitExit();
  EXPECT_TRUE(WaitUntil([&] { return !std::filesystem::exists(Socket()); })) << "drained and gone";
}

// An unfinished reactor would keep gRPC from ever shutting down.
// https://github.com/grpc/grpc/issues/7755
// https://github.com/userver-framework/userver/issues/440
// https://github.com/grpc/grpc/issues/39114
TEST_F(Process, DrainFinishesTheRunningJobAndTellsIdleStreams) {
  const std::string go = directory_.File("go");
  const auto process = Start({"--fault=plan.after_pins:until=" + go, "--drain.notice_ms=300"});
  ASSERT_TRUE(Started(*process));
  RawWorker idle(Socket()), busy(Socket());
  ASSERT_TRUE(idle.Attach());
  ASSERT_TRUE(busy.Attach());
  ASSERT_EQ(busy.Bind(), "ok");
  ASSERT_TRUE(busy.Lend().ok());
  const auto health = Connect(Socket());
  grpc::Status job;
  v1::CompressResponse response;
  std::jthread caller([&] { job = busy.Compress(busy.RecencyRequest(1, 40, 10), &response); });
  EXPECT_TRUE(WaitUntil([&] { return busy.RegionIsPinned(); }));
  process->Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return HealthOf(health, "kvtriage.ready") == "NOT_SERVING"; }));
  EXPECT_EQ(HealthOf(health, "kvtriage.v1.TriageService"), "NOT_SERVING");
  EXPECT_EQ(HealthOf(health, ""), "SERVING") << "draining is not dying";
  const auto notice = idle.Read();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->notice().kind(), v1::Notice::KIND_DRAINING);
  EXPECT_GT(notice->notice().deadline_ms(), 0u);
  // The notice is over when nobody gets in any more. Calls before that still queue behind the job.
  EXPECT_TRUE(WaitUntil([&] {
    RawWorker late(Socket());
    return !late.Attach() && ReasonOf(late.FinishStream()) == "draining";
  }));
  v1::CompressResponse refused;
  EXPECT_EQ(ReasonOf(busy.Compress(busy.RecencyRequest(3, 40, 10), &refused)), "draining");
  std::ofstream(go).close();
  caller.join();
  EXPECT_TRUE(job.ok()) << ReasonOf(job);
  const auto ending = idle.Read();
  ASSERT_TRUE(ending.has_value());
  EXPECT_EQ(ending->notice().kind(), v1::Notice::KIND_SESSION_ENDING);
  EXPECT_EQ(ending->notice().reason(), "drain");
  EXPECT_EQ(ReasonOf(idle.FinishStream()), "draining");
  EXPECT_EQ(process->WaitExit(), 0);
  EXPECT_FALSE(std::filesystem::exists(Socket()));
}

// Every answer that the service gave arrives: as many calls are OK here as it logged.
TEST_F(Process, DrainUnderLoadLosesNoJob) {
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    const auto process = Start({"--drain.notice_ms=50", "--log.level=debug"});
    ASSERT_TRUE(Started(*process));
    std::atomic<int> ok{0};
    std::vector<std::unique_ptr<RawWorker>> workers;
    for (int i = 0; i < 3; ++i) {
      workers.push_back(std::make_unique<RawWorker>(Socket()));
      ASSERT_TRUE(workers.back()->Attach());
      ASSERT_EQ(workers.back()->Bind(), "ok");
      ASSERT_TRUE(workers.back()->Lend().ok());
    }
    std::vector<std::jthread> callers;
    for (const auto& worker : workers) {
      callers.emplace_back([&ok, &worker] {
        for (uint64_t id = 1;; ++id) {
          v1::CompressResponse response;
          const grpc::Status status =
              worker->Compress(worker->AttentionRequest(id, 64, 16), &response);
          if (status.ok()) {
            ++ok;
            continue;
          }
          const std::string reason = ReasonOf(status);
          // Without a reason of ours the call came too late to be heard.
          EXPECT_TRUE(reason == "draining" || reason == "session_unknown" ||
                      reason == "session_ended" ||
                      status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::CANCELLED)
              << reason;
          return;
        }
      });
    }
    ASSERT_TRUE(WaitUntil([&] { return ok > 20; }));
    process->Signal(SIGTERM);
    EXPECT_EQ(process->WaitExit(), 0);
    callers.clear();
    std::istringstream log(process->ErrorOutput());
    int answered = 0;
    for (std::string line; std::getline(log, line);) {
      answered += line.find("\"method\":\"Compress\",\"code\":\"OK\"") != std::string::npos;
    }
    EXPECT_EQ(ok, answered);
  }
}

TEST_F(Process, SecondSignalEndsTheDrainAtOnce) {
  const auto process = Start({"--drain.notice_ms=60000"});
  ASSERT_TRUE(Started(*process));
  RawWorker idle(Socket());
  ASSERT_TRUE(idle.Attach());
  process->Signal(SIGTERM);
  ASSERT_TRUE(idle.Read().has_value());  // the notice: the drain has begun
  process->Signal(SIGTERM);
  EXPECT_EQ(process->WaitExit(), 0) << "long before the minute of the notice";
  EXPECT_EQ(idle.FinishStream().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Process, HangingShutdownIsCutOff) {
  const auto process =
      Start({"--fault=plan.after_pins:hang", "--drain.notice_ms=0", "--drain.deadline_ms=200"});
  ASSERT_TRUE(Started(*process));
  RawWorker worker(Socket());
  ASSERT_TRUE(worker.Attach());
  ASSERT_EQ(worker.Bind(), "ok");
  ASSERT_TRUE(worker.Lend().ok());
  std::jthread caller([&] {
    v1::CompressResponse response;
    EXPECT_FALSE(worker.Compress(worker.RecencyRequest(1, 40, 10), &response).ok());
  });
  EXPECT_TRUE(WaitUntil([&] { return worker.RegionIsPinned(); }));
  process->Signal(SIGTERM);
  EXPECT_EQ(process->WaitExit(), 1);
  EXPECT_THAT(process->ErrorOutput(), HasSubstr("shutdown_hangs"));
  caller.join();
}

TEST_F(Process, StuckJobEndsTheServiceWithItsOwnCode) {
  const auto process = Start({"--fault=plan.after_pins:hang", "--lane.stuck_ms=300"});
  ASSERT_TRUE(Started(*process));
  RawWorker worker(Socket());
  ASSERT_TRUE(worker.Attach());
  ASSERT_EQ(worker.Bind(), "ok");
  ASSERT_TRUE(worker.Lend().ok());
  std::jthread caller([&] {
    v1::CompressResponse response;
    EXPECT_FALSE(worker.Compress(worker.RecencyRequest(1, 40, 10), &response).ok());
  });
  const auto notice = worker.Read();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->notice().kind(), v1::Notice::KIND_DEVICE_SICK);
  EXPECT_EQ(HealthOf(Connect(Socket()), ""), "NOT_SERVING");
  v1::CompressResponse response;
  EXPECT_EQ(ReasonOf(worker.Compress(worker.RecencyRequest(2, 40, 10), &response)), "device_sick");
  EXPECT_EQ(process->WaitExit(), 71);
  EXPECT_THAT(process->ErrorOutput(), AllOf(HasSubstr("\"stuck\""), HasSubstr("\"lane\"")));
  caller.join();
}

TEST_F(Process, StuckUnmappingEndsTheServiceWithItsOwnCode) {
  const auto process = Start({"--fault=memory.before_close:hang"});
  ASSERT_TRUE(Started(*process));
  RawWorker worker(Socket());
  ASSERT_TRUE(worker.Attach());
  ASSERT_EQ(worker.Bind(), "ok");
  ASSERT_TRUE(worker.Lend().ok());
  v1::UnregisterRegionsRequest request;
  request.set_everything(true);
  v1::UnregisterRegionsResponse response;
  const grpc::Status status =
      v1::MemoryService::NewStub(worker.channel())
          ->UnregisterRegions(worker.Context(60'000).get(), request, &response);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(process->WaitExit(), 71);
  EXPECT_THAT(process->ErrorOutput(), HasSubstr("\"mapper\""));
}

TEST_F(Process, TooFewDescriptorsNameBothNumbers) {
  ChildProcess::Options options;
  options.arguments = {"-c", "ulimit -n 300; exec '" + std::string(kProgram) +
                                 "' --listen.metrics= --listen.uds='" + Socket() + "'"};
  const auto process = ChildProcess::Start("/bin/sh", options);
  EXPECT_EQ(process->WaitExit(), 1);
  EXPECT_THAT(process->ErrorOutput(),
              AllOf(HasSubstr("300"), HasSubstr("1088"), HasSubstr("file descriptors")));
}

}  // namespace
}  // namespace kvtriage
