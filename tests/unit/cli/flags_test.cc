#include "client/cli/flags.h"

#include "gtest/gtest.h"

namespace kvtriage::cli {
namespace {

constexpr FlagSpec kSpecs[] = {{"--dump", "FILE", "a dump"}, {"--json", "", "machine-readable"}};

absl::StatusOr<Flags> Parse(std::vector<std::string> arguments) {
  return Flags::Parse(kSpecs, arguments);
}

TEST(Flags, BothSpellingsOfAValue) {
  EXPECT_EQ(Parse({"--dump", "a"})->Get("--dump"), "a");
  EXPECT_EQ(Parse({"--dump=a=b"})->Get("--dump"), "a=b");
  EXPECT_EQ(Parse({"--dump="})->Get("--dump"), "");
  const auto flags = Parse({"--json", "--dump", "--json"});
  ASSERT_TRUE(flags.ok());
  EXPECT_TRUE(flags->Has("--json"));
  EXPECT_EQ(flags->Get("--dump"), "--json");
  EXPECT_EQ(Parse({})->Get("--dump"), std::nullopt);
}

TEST(Flags, WhatIsNotKnownIsRefused) {
  EXPECT_FALSE(Parse({"--dumps", "a"}).ok());
  EXPECT_FALSE(Parse({"a"}).ok());
  EXPECT_FALSE(Parse({"--dump"}).ok());
  EXPECT_FALSE(Parse({"--json=1"}).ok());
  EXPECT_FALSE(Parse({"--json", "--json"}).ok());
}

TEST(SplitList, KeepsEmptyParts) {
  EXPECT_EQ(SplitList("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(SplitList("a,,"), (std::vector<std::string>{"a", "", ""}));
}

}  // namespace
}  // namespace kvtriage::cli
