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

constexpr char kChat[] =
    "scorer { obc { form: FORM_JOINT } } window { last: 32 } reduce { kind: KIND_SUM } "
    "pool { kind: KIND_MAX kernel: 7 } protect { sinks: 4 recent: 32 } "
    "budget { adaptive { alpha: 0.2 } } granularity: GRANULARITY_PER_HEAD";

TEST(PolicyDefinition, IsAPolicyLikeOurs) {
  Config config;
  const std::string text = std::string("policy.default = chat\npolicy.define.chat = ") + kChat +
                           "\npolicy.define.a = scorer { key_norm {} } protect {} "
                           "granularity: GRANULARITY_PER_LAYER budget { pyramid { beta: 3 } }";
  ASSERT_TRUE(ParseConfigText("f", text, config).ok());
  ASSERT_TRUE(FinishConfig(config).ok());
  ASSERT_EQ(config.policy.defined.size(), 2u);
  EXPECT_EQ(config.policy.defined[0].name, "a");
  EXPECT_EQ(config.policy.defined[0].budget, (Budget{.pyramid_beta = 3}));
  EXPECT_EQ(config.policy.defined[1].score.scorer, Scorer::kObcJoint);
  Config again;
  const absl::Status status = ParseConfigText("printed", PrintConfig(config), again);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(PrintConfig(again), PrintConfig(config));
}

TEST(PolicyDefinition, AFlagReplacesTheFiles) {
  const TempDir directory;
  CommandLine line;
  line.config_file = directory.File("own.conf");
  std::ofstream(line.config_file) << "policy.define.chat = " << kChat << "\n";
  line.keys = {{"policy.define.chat",
                "scorer { key_diff {} } protect {} granularity: GRANULARITY_PER_HEAD"}};
  const auto config = LoadConfig(line, Of({}));
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->policy.defined.size(), 1u);
  EXPECT_EQ(config->policy.defined[0].score.scorer, Scorer::kKeyDiff);
}

TEST(PolicyDefinition, BadOnesSayWhere) {
  const struct {
    const char* key;
    const char* value;
    const char* complaint;
  } cases[] = {
      {"policy.define.", "", "not one of ours"},
      {"policy.define.snapkv", kChat, "not one of ours"},
      {"policy.define.Chat", kChat, "not one of ours"},
      {"policy.define.a+b", kChat, "not one of ours"},
      {"policy.define.abcdefghijklmnopqrstuvwxyz0123456", kChat, "not one of ours"},
      {"policy.define.chat", "scorer { wish {} }", "column"},
      {"policy.define.chat", "scorer { vatp {}", "column"},
      {"policy.define.chat", "", "scorer"},
      {"policy.define.chat",
       "scorer { key_norm {} } protect {} granularity: GRANULARITY_PER_HEAD "
       "window { last: 3 }",
       "window"},
      {"policy.define.chat", "scorer { lagkv {} } protect {} granularity: GRANULARITY_PER_HEAD",
       "scorer.lagkv.lag"},
      {"policy.define.chat",
       "scorer { key_norm {} } protect {} granularity: GRANULARITY_PER_HEAD "
       "budget { kept_tokens: 5 }",
       "amount"}};
  for (const auto& c : cases) {
    Config config;
    const absl::Status status =
        ParseConfigText("f.conf", std::string(c.key) + " = " + c.value, config);
    ASSERT_FALSE(status.ok()) << c.key << " = " << c.value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.complaint));
    EXPECT_THAT(std::string(status.message()), HasSubstr("f.conf:1: "));
  }
}

TEST(PolicyDefinition, ThereAreAtMost64) {
  Config config;
  std::string text;
  for (int i = 0; i < 64; ++i) {
    text += "policy.define.p" + std::to_string(i) + " = " + kChat + "\n";
  }
  EXPECT_TRUE(ParseConfigText("f", text, config).ok());
  const std::string more = std::string("policy.define.q = ") + kChat;
  EXPECT_FALSE(ParseConfigText("f", more, config).ok());
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
