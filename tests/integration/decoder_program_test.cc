// kvtriage-decoder, as a user runs it.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/service_process.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {
namespace {

using testing::HasSubstr;

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

struct Ran {
  int exit = -1;
  std::string out, error;

  // What stands behind `title` on its line.
  std::string Line(const std::string& title) const {
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(title)) return line.substr(title.size());
    }
    return "no line " + title + " in " + out;
  }
};

Ran Decode(std::vector<std::string> arguments) {
  const auto child =
      ChildProcess::Start(KVTRIAGE_BIN_DIR "/kvtriage-decoder", {std::move(arguments), {}, "", ""});
  if (child == nullptr) return {};
  const int exit = child->WaitExit(60'000).value_or(-1);
  return {exit, child->Output(), child->ErrorOutput()};
}

TEST(DecoderProgram, SaysHowItIsUsedAndWhatIsWrong) {
  const Ran help = Decode({"--help"});
  EXPECT_EQ(help.exit, 0);
  EXPECT_THAT(help.out, HasSubstr("--weights"));
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--keep", "1.5"}, "--keep"},        {{"--ratio", "nan"}, "--ratio"},
      {{"--steps", "-1"}, "--steps"},       {{"--tokens", "1,x"}, "--tokens"},
      {{"--tokens", "@/none"}, "--tokens"}, {{"--prompt-tokens", "0"}, "--prompt-tokens"},
      {{"--chunks", "1;2"}, "--chunks"},    {{"--frobnicate"}, "--frobnicate"},
      {{"--every", "0"}, "--every"},        {{"--prompt-tokens"}, "--prompt-tokens"}};
  for (const auto& [arguments, named] : wrong) {
    const Ran ran = Decode(arguments);
    EXPECT_EQ(ran.exit, 2) << named;
    EXPECT_THAT(ran.error, HasSubstr(named));
  }
  EXPECT_EQ(Decode({"--weights", "/none.gguf"}).exit, 1);
  EXPECT_EQ(Decode({"--weights", "/none.safetensors"}).exit, 1);
  const Ran token = Decode({"--tokens", "5,1000", "--policy", "none"});
  EXPECT_EQ(token.exit, 1);
  EXPECT_THAT(token.error, HasSubstr("1000"));
}

class DecoderProgramWithService : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(service_.Start()); }
  Ran Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--endpoint", service_.endpoint()});
    return Decode(std::move(arguments));
  }
  ServiceProcess service_{kServiceProgram};
};

TEST_F(DecoderProgramWithService, WithAllRowsTheTokensAreTheSame) {
  const Ran ran = Run({"--prompt-tokens", "120", "--steps", "8", "--keep", "1"});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  EXPECT_EQ(ran.Line("snapkv: "), ran.Line("all rows: "));
  EXPECT_THAT(ran.Line("    3"), HasSubstr("1.000"));
  EXPECT_EQ(ran.error, "");
}

TEST_F(DecoderProgramWithService, AShareOfTheRowsIsKeptAndShown) {
  const TempDir directory;
  std::ofstream tokens(directory.File("tokens"));
  for (int i = 0; i < 200; ++i) tokens << (i * 37) % 1000 << (i % 2 == 0 ? "\n" : ", ");
  tokens.close();
  const Ran ran = Run({"--tokens", "@" + directory.File("tokens"), "--policy", "pyramidkv",
                       "--keep", "0.5", "--seed", "3"});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  EXPECT_NE(ran.Line("    0").substr(0, 12), ran.Line("    3").substr(0, 12)) << ran.out;
  const Ran unknown = Run({"--policy", "frobnicate"});
  EXPECT_EQ(unknown.exit, 0) << "an engine goes on";
  EXPECT_THAT(unknown.error, HasSubstr("going on with all 300 rows"));
  EXPECT_EQ(unknown.Line("frobnicate: "), unknown.Line("all rows: "));
}

TEST_F(DecoderProgramWithService, ABudgetHoldsWhileItDecodes) {
  const Ran ran = Run({"--prompt-tokens", "100", "--steps", "50", "--policy", "h2o", "--budget",
                       "60", "--every", "20"});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("150 tokens, 70 rows"));  // 60, and ten since the last call
  EXPECT_EQ(ran.error, "");
}

TEST_F(DecoderProgramWithService, ABlendOfEveryRowDecodesTheSame) {
  const Ran ran = Run({"--prompt-tokens", "100", "--chunks", "30,50", "--ratio", "1"});
  ASSERT_EQ(ran.exit, 0) << ran.error;
  EXPECT_THAT(ran.out, HasSubstr("100 of 100 rows computed again"));
  EXPECT_EQ(ran.Line("blend: "), ran.Line("all rows: "));
  EXPECT_EQ(Run({"--prompt-tokens", "70", "--chunks", "30,50"}).exit, 1);
}

}  // namespace
}  // namespace kvtriage
