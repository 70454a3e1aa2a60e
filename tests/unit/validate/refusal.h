// What a refusal must say.
#ifndef KVTRIAGE_TESTS_UNIT_VALIDATE_REFUSAL_H_
#define KVTRIAGE_TESTS_UNIT_VALIDATE_REFUSAL_H_

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "service/validate/limits.h"

namespace kvtriage {

// Code, reason and field path; the worker's cache must be said to be unharmed.
inline void ExpectRefusal(const absl::Status& status, absl::StatusCode code, ErrorReason reason,
                          const std::string& field) {
  const auto info = GetErrorInfo(status);
  ASSERT_TRUE(info.has_value()) << status;
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(ReasonName(info->reason), ReasonName(reason)) << status;
  EXPECT_EQ(info->field, field) << status;
  EXPECT_EQ(info->cache_state, CacheState::kUnharmed);
  EXPECT_LE(status.message().size(), kMaxErrorTextBytes);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_VALIDATE_REFUSAL_H_
