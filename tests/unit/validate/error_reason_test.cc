// The C++ reasons and the protocol's are one vocabulary: same names, same numbers, and the metric
// label is the lower-case tail of the protocol's name.
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "kvtriage/v1/types.pb.h"

namespace kvtriage {
namespace {

std::string Lower(const std::string& text) { return absl::AsciiStrToLower(text); }

TEST(ErrorReason, EqualsTheProtocol) {
  const std::string prefix = "ERROR_REASON_";
  std::map<int, std::string> protocol;
  const auto& descriptor = *v1::ErrorReason_descriptor();
  for (int i = 0; i < descriptor.value_count(); ++i) {
    const auto& value = *descriptor.value(i);
    ASSERT_EQ(value.name().substr(0, prefix.size()), prefix);
    if (value.number() != 0) protocol[value.number()] = Lower(value.name().substr(prefix.size()));
  }
  std::map<int, std::string> ours;
  for (const ErrorReason reason : AllReasons()) {
    ours[static_cast<int>(reason)] = std::string(ReasonName(reason));
  }
  EXPECT_EQ(ours, protocol);
  EXPECT_EQ(ours.size(), AllReasons().size());
}

TEST(CacheState, EqualsTheProtocol) {
  EXPECT_EQ(static_cast<int>(CacheState::kUnharmed), v1::CACHE_STATE_UNHARMED);
  EXPECT_EQ(static_cast<int>(CacheState::kSeeLedger), v1::CACHE_STATE_SEE_LEDGER);
}

}  // namespace
}  // namespace kvtriage
