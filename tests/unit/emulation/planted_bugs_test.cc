// Every planted bug is caught by the build that is said to catch it: by a wrong result, by the
// emulator itself, by AddressSanitizer's bounds or by ThreadSanitizer's races.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/emulation/emulation.h"
#include "tests/support/child_process.h"

namespace kvtriage {
namespace {

enum class Outcome { kRight, kWrong, kStopped, kOutOfBounds, kRace };

constexpr int kAsanExit = 67, kTsanExit = 66;

std::string Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRight:
      return "a right result";
    case Outcome::kWrong:
      return "a wrong result";
    case Outcome::kStopped:
      return "a stop by the emulator";
    case Outcome::kOutOfBounds:
      return "a report by AddressSanitizer";
    case Outcome::kRace:
      return "a report by ThreadSanitizer";
  }
  return "?";
}

Outcome RunBug(const std::string& bug, uint64_t seed) {
  auto child = ChildProcess::Start(
      KVTRIAGE_BIN_DIR "/planted_bugs",
      {.arguments = {bug, std::to_string(seed)},
       .environment = {"ASAN_OPTIONS=detect_leaks=0:exitcode=" + std::to_string(kAsanExit),
                       "TSAN_OPTIONS=halt_on_error=1:exitcode=" + std::to_string(kTsanExit)}});
  const std::optional<int> exit = child->WaitExit(120'000);
  if (!exit.has_value()) {
    ADD_FAILURE() << bug << " does not end";
    return Outcome::kStopped;
  }
  switch (*exit) {
    case 0:
      return Outcome::kRight;
    case 1:
      return Outcome::kWrong;
    case emulation::kFailureExit:
      return Outcome::kStopped;
    case kAsanExit:
      return Outcome::kOutOfBounds;
    case kTsanExit:
      return Outcome::kRace;
    default:
      ADD_FAILURE() << bug << ": exit code " << *exit << "\n" << child->ErrorOutput();
      return Outcome::kStopped;
  }
}

struct Bug {
  const char* name;
  Outcome plain, asan, tsan;
};

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVTRIAGE_UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define KVTRIAGE_UNDER_ASAN 1
#endif
#endif
Outcome Expected(const Bug& bug) {
#if defined(KVTRIAGE_UNDER_TSAN)
  return bug.tsan;
#elif defined(KVTRIAGE_UNDER_ASAN)
  return bug.asan;
#else
  return bug.plain;
#endif
}

constexpr Outcome kRight = Outcome::kRight, kWrong = Outcome::kWrong, kRace = Outcome::kRace;
constexpr Bug kBugs[] = {
    {"none", kRight, kRight, kRight},
    {"missing-barrier", kWrong, kWrong, kRace},
    {"divergent-barrier", Outcome::kStopped, Outcome::kStopped, Outcome::kStopped},
    {"off-by-one", kWrong, Outcome::kOutOfBounds, kWrong},
    {"missing-wait", kWrong, kWrong, kRace},
    {"unordered-blocks", kWrong, kWrong, kRace},
    {"missing-staging-barrier", kWrong, kWrong, kRace},
    {"plain-add", kRight, kRight, kRace},
};

class PlantedBugs : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBugs, AreCaught) {
  const Bug& bug = GetParam();
  const Outcome expected = Expected(bug);
  // A schedule may hide a bug; of seeds 0 to 3, one has to show it. Without a bug none may.
  bool seen = false;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const Outcome outcome = RunBug(bug.name, seed);
    if (expected == kRight) {
      EXPECT_EQ(Name(outcome), Name(kRight)) << bug.name << ", seed " << seed;
    }
    seen = seen || outcome == expected;
  }
  EXPECT_TRUE(seen) << bug.name << " never ended with " << Name(expected);
}

INSTANTIATE_TEST_SUITE_P(Table, PlantedBugs, testing::ValuesIn(kBugs),
                         [](const testing::TestParamInfo<Bug>& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace kvtriage
