#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/app/config_keys.h"
#include "service/app/config_load.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  Config config;
  const absl::Status status = ParseConfigText("x.conf", text, config);
  return status.ok() ? "accepted" : std::string(status.message());
}

Environment Of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found != values.end() ? std::optional(found->second) : std::nullopt;
  };
}

TEST(ConfigFile, LinesCommentsAndSpaces) {
  Config config;
  const absl::Status status = ParseConfigText("x.conf",
                                              "# a comment\n\n  session.max =  7  # seven\r\n"
                                              "policy.default=snapkv\nledger.bytes = 2MiB",
                                              config);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.limits.max_sessions, 7u);
  EXPECT_EQ(config.policy.name, "snapkv");
  EXPECT_EQ(config.limits.ledger_bytes, 2u << 20);
}

TEST(ConfigFile, ErrorsNameFileLineAndKey) {
  EXPECT_THAT(Refusal("\nsession.max = 7\nsesion.max = 8\n"),
              AllOf(HasSubstr("x.conf:3"), HasSubstr("'sesion.max'"), HasSubstr("unknown")));
  EXPECT_THAT(Refusal("session.max = 7\nsession.max = 7\n"),
              AllOf(HasSubstr("x.conf:2"), HasSubstr("'session.max'"), HasSubstr("twice")));
  EXPECT_THAT(Refusal("session.max = 0"), AllOf(HasSubstr("x.conf:1"), HasSubstr("'session.max'"),
                                                HasSubstr("from 1 to 10000")));
  EXPECT_THAT(Refusal("[section]\n"), AllOf(HasSubstr("x.conf:1"), HasSubstr("key = value")));
  EXPECT_THAT(Refusal("= 7\n"), HasSubstr("x.conf:1"));
}

TEST(ConfigFile, FlagWinsOverEnvironmentOverFileOverDefault) {
  const TempDir directory;
  CommandLine line;
  line.config_file = directory.File("kvtriage.conf");
  std::ofstream(line.config_file) << "session.max = 1000\nsession.in_flight = 2\nlane.queue = 10\n";
  line.keys = {{"session.max", "3000"}};
  const auto config =
      LoadConfig(line, Of({{"KVTRIAGE_SESSION_MAX", "2000"}, {"KVTRIAGE_SESSION_IN_FLIGHT", "3"}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->limits.max_sessions, 3000u);
  EXPECT_EQ(config->limits.max_in_flight, 3u);
  EXPECT_EQ(config->limits.lane_queue, 10u);
  EXPECT_EQ(config->limits.max_regions, 512u);
}

TEST(ConfigFile, BadEnvironmentNamesTheVariable) {
  const auto config = LoadConfig({}, Of({{"KVTRIAGE_LOG_LEVEL", "loud"}}));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("KVTRIAGE_LOG_LEVEL"));
}

TEST(ConfigFile, MissingOrHugeFile) {
  CommandLine line;
  line.config_file = "/nonexistent/kvtriage.conf";
  auto config = LoadConfig(line, Of({}));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("/nonexistent/kvtriage.conf"));
  const TempDir directory;
  line.config_file = directory.File("huge.conf");
  std::ofstream(line.config_file) << std::string((1 << 20) + 1, '#');
  config = LoadConfig(line, Of({}));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("larger"));
}

// What --check-config prints can be the configuration file.
TEST(ConfigFile, PrintedConfigReadsBackTheSame) {
  CommandLine line;
  line.keys = {
      {"policy.default", "adakv+drop"}, {"policy.kept_ratio", "0.1"}, {"policy.recent", "32"}};
  const auto config = LoadConfig(line, Of({}));
  ASSERT_TRUE(config.ok()) << config.status();
  Config again;
  const absl::Status status = ParseConfigText("printed", PrintConfig(*config), again);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(FinishConfig(again).ok());
  EXPECT_EQ(PrintConfig(again), PrintConfig(*config));
}

}  // namespace
}  // namespace kvtriage
