// The one answer for memory that the caller does not have: never lent, already closed, closing, or
// another session's. Nobody may tell these apart.
#ifndef KVTRIAGE_SERVICE_MEMORY_MEMORY_UNKNOWN_H_
#define KVTRIAGE_SERVICE_MEMORY_MEMORY_UNKNOWN_H_

#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/error.h"

namespace kvtriage {

inline absl::Status MemoryUnknown(std::string_view field) {
  return Error(ErrorReason::kMemoryUnknown, field, "no such region or cache in this session");
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_MEMORY_UNKNOWN_H_
