// What an error says, for comparisons: "ok" or the reason's name; and the request field it names.
#ifndef KVTRIAGE_TESTS_SUPPORT_REASON_OF_H_
#define KVTRIAGE_TESTS_SUPPORT_REASON_OF_H_

#include <string>

#include "absl/status/status.h"
#include "kernels/core/error.h"

namespace kvtriage {

inline std::string ReasonOf(const absl::Status& status) {
  if (status.ok()) return "ok";
  const auto info = GetErrorInfo(status);
  return info ? std::string(ReasonName(info->reason)) : "no details: " + status.ToString();
}

inline std::string FieldOf(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  return info ? info->field : "";
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_REASON_OF_H_
