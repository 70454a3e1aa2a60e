#include "service/app/config_keys.h"

#include <unistd.h>

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/app/config_load.h"

namespace kvtriage {
namespace {

using ::testing::HasSubstr;

struct Samples {
  std::vector<std::string> good, bad;
};

const std::map<std::string, Samples>& AllSamples() {
  static const auto* const samples = new std::map<std::string, Samples>{
      {"listen.uds",
       {{"/run/x.sock", "unix:/run/x.sock"},
        {"", "x.sock", "unix:", "/", "/run/", std::string(120, '/') + "x"}}},
      {"listen.fd_uds", {{"/run/kvtriage/other.sock"}, {"other.sock", ""}}},
      {"listen.metrics", {{"", "127.0.0.1:0", "[::1]:9401", "9401"}, {}}},
      {"listen.strict_dir", {{"true", "false"}, {"", "yes", "1", "TRUE"}}},
      {"auth.allowed_uids",
       {{"", "0", "0,1000", "4294967294"}, {"root", "1,", ",1", "-1", "4294967295", "1 2"}}},
      {"auth.allowed_gids", {{"", "5,6"}, {"wheel", "5,,6"}}},
      {"rpc.max_request_bytes",
       {{"4KiB", "262144", "1MiB"}, {"", "0", "1KiB", "2MiB", "1GB", "1 MiB", "KiB", "-1"}}},
      {"rpc.max_connections", {{"1", "1024"}, {"0", "1025", "many", "1.5", "1e3"}}},
      {"rpc.reflection", {{"true"}, {"on"}}},
      {"session.max", {{"64", "10000"}, {"0", "10001"}}},
      {"session.max_bound", {{"1", "256"}, {"0", "1025"}}},
      {"session.in_flight", {{"1", "8"}, {"0", "9"}}},
      {"lease.keepalive_ms", {{"100", "3600000"}, {"99", "5s"}}},
      {"lease.keepalive_timeout_ms", {{"100"}, {"0"}}},
      {"memory.max_regions", {{"1", "4096"}, {"0", "4097"}}},
      {"memory.max_host_bytes",
       {{"1", "4096GiB"}, {"0", "99999999999999999999", "18446744073709551615GiB"}}},
      {"ledger.bytes", {{"4KiB", "16MiB"}, {"4095", "17MiB"}}},
      {"backend", {{"auto", "cpu", "cuda"}, {"", "gpu", "CPU"}}},
      {"cuda.devices",
       {{"all", "none", "GPU-6b767472-6961-6765-2d66-616b652d6400", "GPU-aa,MIG-bb/1/0"},
        {"", "0", "0,1", "GPU-", "GPU-aa,", "all,GPU-aa", "GPU-a b"}}},
      {"cuda.arena_bytes", {{"16MiB", "256MiB", "64GiB"}, {"", "1MiB", "65GiB", "half"}}},
      {"lane.cpu_threads", {{"0", "1", "1024"}, {"-1", "1025", "auto"}}},
      {"lane.stuck_ms", {{"100"}, {"0"}}},
      {"lane.queue", {{"1", "65536"}, {"0"}}},
      {"state.sequences", {{"1", "65536"}, {"0", "65537"}}},
      {"state.groups", {{"1", "1024"}, {"0", "1025"}}},
      {"state.group_bytes", {{"0", "1GiB"}, {"lots"}}},
      {"state.score_bytes", {{"0", "1", "512MiB", "1024GiB"}, {"", "-1", "lots", "1025GiB"}}},
      {"results.ttl_ms", {{"100"}, {"0"}}},
      {"results.bytes", {{"0", "1GiB"}, {"lots"}}},
      {"policy.default", {{"", "snapkv", "h2o+obc-joint"}, {}}},
      {"policy.kept_ratio",
       {{"0.001", "0.5", "1", "1.0"}, {"0", "-0.5", "1.01", "nan", "inf", "half", ""}}},
      {"policy.sinks", {{"", "0", "4"}, {"-1", "4.5"}}},
      {"policy.recent", {{"", "64"}, {"x"}}},
      {"drain.notice_ms", {{"0", "120000"}, {"120001"}}},
      {"drain.deadline_ms", {{"1"}, {"0"}}},
      {"metrics.model", {{"llama-3.1/8B_x"}, {"", "a b", "x\"", std::string(65, 'a')}}},
      {"metrics.per_layer", {{"false"}, {"0"}}},
      {"log.level", {{"debug", "error"}, {"trace", ""}}},
  };
  return *samples;
}

TEST(ConfigKeys, EveryKeyHasSamples) {
  std::set<std::string> keys, samples;
  for (const ConfigKey& key : ConfigKeys()) keys.insert(std::string(key.name));
  for (const auto& [name, values] : AllSamples()) samples.insert(name);
  EXPECT_EQ(keys, samples);
  EXPECT_EQ(keys.size(), ConfigKeys().size()) << "a key stands twice in the table";
}

TEST(ConfigKeys, GoodValuesPrintAsThemselves) {
  for (const ConfigKey& key : ConfigKeys()) {
    for (const std::string& value : AllSamples().at(std::string(key.name)).good) {
      Config once, twice;
      ASSERT_TRUE(key.set(value, once).ok()) << key.name << " = '" << value << "'";
      ASSERT_TRUE(key.set(key.print(once), twice).ok())
          << key.name << " = '" << key.print(once) << "'";
      EXPECT_EQ(key.print(once), key.print(twice)) << key.name;
    }
  }
}

TEST(ConfigKeys, BadValuesSayWhatWasExpected) {
  for (const ConfigKey& key : ConfigKeys()) {
    for (const std::string& value : AllSamples().at(std::string(key.name)).bad) {
      Config config;
      const absl::Status status = key.set(value, config);
      EXPECT_FALSE(status.ok()) << key.name << " = '" << value << "'";
      EXPECT_THAT(std::string(status.message()), HasSubstr("expected")) << key.name;
    }
  }
}

TEST(ConfigKeys, DefaultsAreWhatTheTableSays) {
  Config config;
  ASSERT_TRUE(FinishConfig(config).ok());
  for (const std::string_view name : {"listen.uds",
                                      "listen.metrics",
                                      "listen.strict_dir",
                                      "rpc.max_request_bytes",
                                      "rpc.max_connections",
                                      "rpc.reflection",
                                      "session.max",
                                      "session.max_bound",
                                      "session.in_flight",
                                      "lease.keepalive_ms",
                                      "lease.keepalive_timeout_ms",
                                      "memory.max_regions",
                                      "memory.max_host_bytes",
                                      "ledger.bytes",
                                      "backend",
                                      "cuda.devices",
                                      "cuda.arena_bytes",
                                      "lane.cpu_threads",
                                      "lane.stuck_ms",
                                      "lane.queue",
                                      "state.sequences",
                                      "state.score_bytes",
                                      "state.groups",
                                      "state.group_bytes",
                                      "results.ttl_ms",
                                      "results.bytes",
                                      "policy.kept_ratio",
                                      "drain.notice_ms",
                                      "drain.deadline_ms",
                                      "metrics.model",
                                      "metrics.per_layer",
                                      "log.level"}) {
    const ConfigKey* key = FindConfigKey(name);
    ASSERT_NE(key, nullptr) << name;
    EXPECT_EQ(key->print(config), key->initial) << name;
  }
  EXPECT_EQ(config.fd_uds, "/run/kvtriage/kvtriage-fd.sock");
  EXPECT_EQ(config.policy.name, "");
  EXPECT_FALSE(config.policy.sinks.has_value());
}

TEST(ConfigKeys, OwnUserMayConnectByDefaultAndGroupZeroMayNot) {
  Config config;
  ASSERT_TRUE(FinishConfig(config).ok());
  EXPECT_THAT(config.allowed_uids, ::testing::Contains(geteuid()));
  EXPECT_THAT(config.allowed_uids, ::testing::Contains(0u));
  EXPECT_THAT(config.allowed_gids, ::testing::Not(::testing::Contains(0u)));
  Config empty;
  ASSERT_TRUE(FindConfigKey("auth.allowed_uids")->set("", empty).ok());
  ASSERT_TRUE(FinishConfig(empty).ok());
  EXPECT_TRUE(empty.allowed_uids.empty()) << "an empty list that was given stays empty";
}

TEST(ConfigKeys, KeysAreCheckedAgainstEachOther) {
  const auto refusal = [](std::vector<std::pair<std::string, std::string>> values) {
    Config config;
    for (const auto& [key, value] : values)
      EXPECT_TRUE(FindConfigKey(key)->set(value, config).ok());
    const absl::Status status = FinishConfig(config);
    return status.ok() ? "accepted" : std::string(status.message());
  };
  EXPECT_EQ(refusal({{"listen.uds", "/a/b.sock"}, {"listen.fd_uds", "/a/c.sock"}}), "accepted");
  EXPECT_THAT(refusal({{"listen.uds", "/a/b.sock"}, {"listen.fd_uds", "/c/b.sock"}}),
              HasSubstr("listen.fd_uds"));
  EXPECT_THAT(refusal({{"listen.uds", "/a/b.sock"}, {"listen.fd_uds", "/a/b.sock"}}),
              HasSubstr("listen.fd_uds"));
  EXPECT_THAT(refusal({{"listen.uds", "/" + std::string(104, 'a')}}), HasSubstr("listen.uds"));
  EXPECT_EQ(refusal({{"policy.default", "adakv+drop"}}), "accepted");
  for (const char* name : {"snapKV", "pyramid", "snapkv+", "chat"}) {
    EXPECT_THAT(refusal({{"policy.default", name}}), HasSubstr("policy.default")) << name;
    EXPECT_THAT(refusal({{"policy.default", name}}), HasSubstr("expected one of")) << name;
  }
  EXPECT_THAT(refusal({{"session.max", "10"}, {"session.max_bound", "11"}}),
              HasSubstr("session.max_bound"));
}

TEST(ConfigKeys, EnvironmentNames) {
  EXPECT_EQ(EnvironmentName("lease.keepalive_timeout_ms"), "KVTRIAGE_LEASE_KEEPALIVE_TIMEOUT_MS");
}

}  // namespace
}  // namespace kvtriage
