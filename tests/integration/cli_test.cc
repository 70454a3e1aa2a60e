// The kvtriage program and the example, as a user runs them.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/service_process.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/dump_file.h"

namespace kvtriage {
namespace {

using Json = nlohmann::json;

constexpr char kCli[] = KVTRIAGE_BIN_DIR "/kvtriage";
constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

struct Ran {
  int exit = -1;
  std::string out, error;
  Json json() const { return Json::parse(out, nullptr, false); }
};

Ran RunProgram(const std::string& program, std::vector<std::string> arguments,
               std::vector<std::string> environment = {}) {
  const auto child =
      ChildProcess::Start(program, {std::move(arguments), std::move(environment), "", ""});
  if (child == nullptr) return {};
  const int exit = child->WaitExit(60'000).value_or(-1);
  return {exit, child->Output(), child->ErrorOutput()};
}

// The state of each doctor step, in order.
std::vector<std::string> States(const Json& report) {
  std::vector<std::string> states;
  for (const Json& step : report["steps"]) states.push_back(step["state"]);
  return states;
}

TEST(Cli, SaysHowItIsUsed) {
  const Ran nothing = RunProgram(kCli, {});
  EXPECT_EQ(nothing.exit, 2);
  EXPECT_NE(nothing.error.find("doctor"), std::string::npos);
  EXPECT_EQ(RunProgram(kCli, {"--help"}).exit, 0);
  EXPECT_EQ(RunProgram(kCli, {"--version"}).out, "kvtriage " KVTRIAGE_VERSION "\n");
  const Ran unknown = RunProgram(kCli, {"frobnicate"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_NE(unknown.error.find("frobnicate"), std::string::npos);
  for (const char* command : {"info", "policies", "compress", "hkvd", "doctor"}) {
    const Ran help = RunProgram(kCli, {command, "--help"});
    EXPECT_EQ(help.exit, 0) << command;
    EXPECT_NE(help.out.find("--endpoint"), std::string::npos) << command;
    EXPECT_EQ(RunProgram(kCli, {command, "--no-such-flag"}).exit, 2) << command;
  }
}

// As git does: a command that is no part of the program is a program of its own.
TEST(Cli, OtherCommandsAreProgramsInPath) {
  const TempDir folder;
  const std::string program = folder.path() + "/kvtriage-eval";
  std::ofstream(program)
      << "#!/bin/sh\nfor word in \"$KVTRIAGED\" \"$@\"; do echo \"<$word>\"; done\nexit 7\n";
  const std::vector<std::string> arguments = {"eval", "--help", "two words", ""};
  const std::string path = "PATH=" + folder.path() + ":" + std::getenv("PATH");
  const Ran denied = RunProgram(kCli, arguments, {"PATH=" + folder.path()});
  EXPECT_EQ(denied.exit, 2);
  EXPECT_NE(denied.error.find("kvtriage-eval: Permission denied"), std::string::npos)
      << denied.error;

  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Ran ran = RunProgram(kCli, arguments, {path});
  EXPECT_EQ(ran.exit, 7) << ran.error;
  EXPECT_EQ(ran.out, "<" + std::string(kServiceProgram) + ">\n<--help>\n<two words>\n<>\n");
  EXPECT_EQ(RunProgram(kCli, {"eval"}, {path, "KVTRIAGED=mine"}).out, "<mine>\n");
}

TEST(Cli, SaysWhereTheEvaluationComesFrom) {
  const TempDir empty;
  const Ran missing = RunProgram(kCli, {"eval"}, {"PATH=" + empty.path()});
  EXPECT_EQ(missing.exit, 2);
  EXPECT_NE(missing.error.find("pip install 'kvtriage[eval]'"), std::string::npos) << missing.error;
  const Ran path = RunProgram(kCli, {"../kvtriage"});
  EXPECT_EQ(path.exit, 2);
  EXPECT_NE(path.error.find("no command named ../kvtriage"), std::string::npos) << path.error;
}

class CliWithService : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(service_.Start()); }
  Ran Cli(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--endpoint", service_.endpoint()});
    return RunProgram(kCli, std::move(arguments));
  }
  ServiceProcess service_{kServiceProgram};
};

// The keys of reused chunks are compared where they will stand; what a few rows carry is printed.
TEST_F(CliWithService, HkvdComparesKeysAtTheSamePositions) {
  const std::string dump = KVTRIAGE_SOURCE_DIR "/tests/data/blend.safetensors";
  const auto hkvd = [&](const char* metric) {
    return Cli(
        {"hkvd", "--dump", dump, "--layer", "1", "--ratio", "0.15", "--metric", metric, "--json"});
  };
  const Ran keys = hkvd("k");
  ASSERT_EQ(keys.exit, 0) << keys.error;
  const auto k = nlohmann::json::parse(keys.out);
  EXPECT_NEAR(k.at("key_difference").at("stored"), 0.7151, 1e-4);
  EXPECT_NEAR(k.at("key_difference").at("rerotated"), 0.0547, 1e-4);
  const Ran values = hkvd("v");
  ASSERT_EQ(values.exit, 0) << values.error;
  const auto v = nlohmann::json::parse(values.out);
  EXPECT_FALSE(v.contains("key_difference"));
  // float64, from the dump.
  const double want_k[] = {0.6043, 0.7444, 0.8235, 0.8733};
  const double want_v[] = {0.7233, 0.8045, 0.8531, 0.8850};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(k.at("carried").at(i).at("divergence_share"), want_k[i], 1e-3);
    EXPECT_NEAR(v.at("carried").at(i).at("divergence_share"), want_v[i], 1e-3);
  }
  const Ran text =
      Cli({"hkvd", "--dump", dump, "--layer", "1", "--ratio", "0.15", "--metric", "k"});
  EXPECT_NE(text.out.find("0.7151 as stored, 0.0547 re-rotated"), std::string::npos) << text.out;
}

TEST_F(CliWithService, InfoDescribesTheService) {
  const Ran text = Cli({"info"});
  EXPECT_EQ(text.exit, 0) << text.error;
  EXPECT_EQ(text.error, "");
  EXPECT_NE(text.out.find(service_.endpoint()), std::string::npos);
  EXPECT_NE(text.out.find("max_request_bytes"), std::string::npos);
  const Ran json = Cli({"info", "--json"});
  EXPECT_EQ(json.exit, 0);
  EXPECT_EQ(json.json()["limits"]["max_in_flight"], 4);
  EXPECT_EQ(json.json()["devices"][0]["kind"], "cpu");
  EXPECT_EQ(json.json()["draining"], false);
}

TEST_F(CliWithService, PoliciesListsEveryNameInItsParts) {
  const Ran json = Cli({"policies", "--json"});
  ASSERT_EQ(json.exit, 0) << json.error;
  const Json policies = json.json()["policies"];
  ASSERT_EQ(policies.size(), 28u);
  EXPECT_EQ(policies[0]["name"], "streaming");
  EXPECT_EQ(policies[0]["scorer"], "recency");
  EXPECT_EQ(policies[0]["protect"]["sinks"], 4);
  EXPECT_TRUE(policies[0]["window"].is_null());
  const Ran text = Cli({"policies"});
  EXPECT_NE(text.out.find("adakv+obc-joint"), std::string::npos);
  EXPECT_NE(text.out.find("adaptive 0.2"), std::string::npos);
  EXPECT_NE(text.out.find("pyramid 20"), std::string::npos);
  EXPECT_NE(text.out.find("SnapKV, arXiv 2404.14469"), std::string::npos);
}

TEST_F(CliWithService, CriticalKvNamesTheTensorThatADumpLacks) {
  const Ran ran = Cli({"compress", "--dump", KVTRIAGE_SOURCE_DIR "/tests/data/cache.safetensors",
                       "--policy", "snapkv,criticalkv", "--keep", "0.2"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_NE(ran.error.find("tensor layers.0.output_projection: missing"), std::string::npos)
      << ran.error;
}

TEST_F(CliWithService, ExpectedAttentionNamesWhatADumpLacks) {
  Ran ran = Cli({"compress", "--dump", KVTRIAGE_SOURCE_DIR "/tests/data/cache.safetensors",
                 "--policy", "expected-attention", "--keep", "0.2"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_NE(ran.error.find("tensor layers.0.query_mean: missing"), std::string::npos) << ran.error;
  cli::CacheDumpContent content;
  content.tensors["layers.7.query_mean"] = {"F32", {4, 4}};
  content.tensors["layers.7.query_covariance"] = {"F32", {4, 4, 4}};
  const cli::TemporaryFile no_rope(content.File());
  ran = Cli(
      {"compress", "--dump", no_rope.path(), "--policy", "expected-attention", "--keep", "0.2"});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_NE(ran.error.find("rope_pairing"), std::string::npos) << ran.error;
  content.metadata["rope_pairing"] = "half";
  content.metadata["rope_theta"] = "10000";
  const cli::TemporaryFile whole(content.File());
  ran = Cli({"compress", "--dump", whole.path(), "--policy", "expected-attention", "--keep", "0.5",
             "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  // Everything is zero, so all rows tie and the lowest stay.
  EXPECT_EQ(ran.json()["runs"][0]["layers"][0]["kept"], Json::parse("[[0,1,2,3,4],[0,1,2,3,4]]"));
}

TEST_F(CliWithService, CriticalKvRunsOnADumpThatHasTheTensor) {
  cli::CacheDumpContent content;
  content.metadata["dumped_layers"] = "[7]";
  content.tensors["layers.7.output_projection"] = {"F32", {20, 24}};
  const cli::TemporaryFile file(content.File());
  const Ran ran = Cli({"compress", "--dump", file.path(), "--policy",
                       "criticalkv,pyramidkv,keydiff,knorm,lagkv", "--keep", "0.5", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  const Json runs = ran.json()["runs"];
  ASSERT_EQ(runs.size(), 5u);
  for (const Json& run : runs) {
    // The window of pyramidkv fills the budget, so its layers share nothing.
    EXPECT_EQ(run["layers"][0]["kept"][0].size(), 5u) << run["policy"];
  }
}

// A policy of the operator's own, from the configuration file to the kept rows.
TEST(OwnPolicies, AreListedAndRunLikeOurs) {
  const TempDir directory;
  const std::string file = directory.File("kvtriage.conf");
  std::ofstream(file) << "policy.define.newest-keys = scorer { key_norm {} } protect { recent: 2 } "
                         "granularity: GRANULARITY_PER_LAYER\n";
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({"--config=" + file, "--policy.default=newest-keys"}));
  const Ran list = RunProgram(kCli, {"policies", "--json", "--endpoint", service.endpoint()});
  ASSERT_EQ(list.exit, 0) << list.error;
  EXPECT_EQ(list.json()["default_policy"], "newest-keys");
  const Json own = list.json()["policies"].back();
  EXPECT_EQ(own["name"], "newest-keys");
  EXPECT_EQ(own["scorer"], "key-norm");
  EXPECT_EQ(own["granularity"], "layer");
  EXPECT_EQ(own["source"], "this service's configuration");
  const cli::TemporaryFile dump(cli::CacheDumpContent().File());
  const Ran ran = RunProgram(kCli, {"compress", "--dump", dump.path(), "--policy", "newest-keys",
                                    "--keep", "0.3", "--json", "--endpoint", service.endpoint()});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  EXPECT_EQ(ran.json()["runs"][0]["layers"][0]["kept"], Json::parse("[[0,8,9],[0,8,9]]"));
}

TEST_F(CliWithService, DoctorFindsAHealthyServiceHealthy) {
  const Ran json = Cli({"doctor", "--json"});
  EXPECT_EQ(json.exit, 0) << json.out << json.error;
  EXPECT_EQ(json.json()["ok"], true);
  std::vector<std::string> states = States(json.json());
  ASSERT_EQ(states.size(), 6u);
  EXPECT_THAT(states.back(), testing::AnyOf("ok", "skipped")) << "as this machine has a GPU or not";
  states.pop_back();
  EXPECT_EQ(states, std::vector<std::string>(5, "ok")) << json.out;
  EXPECT_TRUE(json.json()["warnings"].empty());
  const Ran text = Cli({"doctor"});
  EXPECT_EQ(text.exit, 0);
  EXPECT_NE(text.out.find("host memory    ok"), std::string::npos) << text.out;
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), 0);  // it takes everything back
}

// Where there is no GPU it says so, whatever else is missing.
TEST_F(CliWithService, TheCudaExampleRunsOrSaysThatThereIsNoDevice) {
  const Ran ran = RunProgram(KVTRIAGE_BIN_DIR "/kvtriage_cuda_example", {service_.endpoint()});
  EXPECT_EQ(ran.exit, 0) << ran.error;
  EXPECT_THAT(ran.out, testing::AnyOf(testing::HasSubstr("no CUDA device here"),
                                      testing::HasSubstr("0 rows with wrong bytes")));
}

TEST_F(CliWithService, TheExampleRuns) {
  const Ran ran = RunProgram(KVTRIAGE_BIN_DIR "/kvtriage_example", {service_.endpoint()});
  EXPECT_EQ(ran.exit, 0) << ran.error;
  EXPECT_TRUE(ran.out.starts_with("applied\n32 tokens, 12 rows now, next position 32\n"))
      << ran.out;
  EXPECT_NE(ran.out.find("layer 1 head 1 kept:"), std::string::npos);
}

TEST(Doctor, NamesTheSocketThatIsMissing) {
  const TempDir directory;
  const Ran ran = RunProgram(kCli, {"doctor", "--json", "--endpoint", directory.File("none.sock")});
  EXPECT_EQ(ran.exit, 1);
  const Json report = ran.json();
  EXPECT_EQ(report["steps"][0]["word"], "socket_missing");
  EXPECT_NE(std::string(report["steps"][0]["text"]).find("none.sock"), std::string::npos);
  EXPECT_EQ(States(report), (std::vector<std::string>{"failed", "not run", "not run", "not run",
                                                      "not run", "not run"}));
  EXPECT_EQ(RunProgram(kCli, {"doctor", "--timeout", "0"}).exit, 2);
  EXPECT_EQ(RunProgram(kCli, {"doctor", "--timeout", "soon"}).exit, 2);
}

// A listener that says nothing: the step ends by its limit.
TEST(Doctor, KnowsAStrangerFromAService) {
  const TempDir directory;
  const std::string path = directory.File("other.sock");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  const Ran ran = RunProgram(kCli, {"doctor", "--json", "--timeout", "2", "--endpoint", path});
  close(listener);
  EXPECT_EQ(ran.exit, 1);
  EXPECT_EQ(ran.json()["steps"][0]["word"], "not_kvtriage") << ran.out;
  EXPECT_LT(ran.json()["steps"][0]["milliseconds"], 4000);
}

TEST(Doctor, AServiceThatDiesInTheTriageIsAFailedStep) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({"--fault=move.mid_rows:kill"}));
  const Ran ran = RunProgram(kCli, {"doctor", "--json", "--endpoint", service.endpoint()});
  EXPECT_EQ(ran.exit, 1);
  EXPECT_EQ(States(ran.json()),
            (std::vector<std::string>{"ok", "ok", "ok", "ok", "failed", "not run"}))
      << ran.out;
}

// Needs the default socket to be free, as it is on a build machine.
TEST(PrivateService, EndsWithTheCommandAndLeavesNothing) {
  if (std::filesystem::exists("/run/kvtriage/kvtriage.sock")) GTEST_SKIP() << "a service runs here";
  const TempDir directory;
  const Ran ran = RunProgram(kCli, {"info", "--json"}, {"TMPDIR=" + directory.path()});
  EXPECT_EQ(ran.exit, 0) << ran.error;
  EXPECT_NE(ran.error.find("started a private one"), std::string::npos) << ran.error;
  EXPECT_TRUE(std::string(ran.json()["endpoint"]).starts_with(directory.path()));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace kvtriage
