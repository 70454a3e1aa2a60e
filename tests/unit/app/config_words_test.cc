#include <cstdlib>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/app/config_keys.h"

namespace kvtriage {
namespace {

constexpr char kPage[] = KVTRIAGE_SOURCE_DIR "/service/app/CONFIG.md";

TEST(ConfigWords, PageIsFresh) {
  if (std::getenv("KVTRIAGE_REWRITE") != nullptr) std::ofstream(kPage) << ConfigMarkdown();
  std::ifstream file(kPage);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, ConfigMarkdown()) << "run this test with KVTRIAGE_REWRITE=1";
}

TEST(ConfigWords, EveryKeyIsExplained) {
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_THAT(ConfigHelp(), ::testing::HasSubstr("--" + std::string(key.name) + "="));
    EXPECT_FALSE(key.meaning.empty()) << key.name;
    EXPECT_FALSE(key.values.empty()) << key.name;
    EXPECT_FALSE(key.initial.empty()) << key.name;
  }
}

}  // namespace
}  // namespace kvtriage
