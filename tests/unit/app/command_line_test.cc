#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/app/config_load.h"

namespace kvtriage {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::vector<std::string>& arguments) {
  const auto line = ParseCommandLine(arguments);
  return line.ok() ? "accepted" : std::string(line.status().message());
}

TEST(CommandLine, TakesFlagsAndKeys) {
  const auto line =
      ParseCommandLine({"--config=/etc/x.conf", "--check-config", "--exit-with-parent",
                        "--session.max=7", "--rpc.reflection", "--policy.default="});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config_file, "/etc/x.conf");
  EXPECT_TRUE(line->check_config);
  EXPECT_TRUE(line->exit_with_parent);
  EXPECT_FALSE(line->help);
  ASSERT_EQ(line->keys.size(), 3u);
  EXPECT_EQ(line->keys[0], (std::pair<std::string, std::string>{"session.max", "7"}));
  EXPECT_EQ(line->keys[1].second, "true") << "a bare switch is on";
  EXPECT_EQ(line->keys[2].second, "");
}

TEST(CommandLine, NamesTheBadFlag) {
  EXPECT_THAT(Refusal({"--sesion.max=7"}), HasSubstr("--sesion.max"));
  EXPECT_THAT(Refusal({"--session.max"}), HasSubstr("needs =VALUE"));
  EXPECT_THAT(Refusal({"session.max=7"}), HasSubstr("not a flag"));
  EXPECT_THAT(Refusal({"--"}), HasSubstr("not a flag"));
  EXPECT_THAT(Refusal({"--session.max=7", "--session.max=8"}), HasSubstr("given twice"));
  EXPECT_THAT(Refusal({"--config="}), HasSubstr("--config"));
  EXPECT_THAT(Refusal({"--help=yes"}), HasSubstr("--help"));
}

}  // namespace
}  // namespace kvtriage
