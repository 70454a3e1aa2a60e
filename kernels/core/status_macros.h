// Early return on an error status.
#ifndef KVTRIAGE_KERNELS_CORE_STATUS_MACROS_H_
#define KVTRIAGE_KERNELS_CORE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define KVTRIAGE_RETURN_IF_ERROR(expression)                                \
  do {                                                                      \
    if (absl::Status kvtriage_status = (expression); !kvtriage_status.ok()) \
      return kvtriage_status;                                               \
  } while (false)

#define KVTRIAGE_CONCAT_INNER(a, b) a##b
#define KVTRIAGE_CONCAT(a, b) KVTRIAGE_CONCAT_INNER(a, b)

// KVTRIAGE_ASSIGN_OR_RETURN(auto x, Compute()); at most one per line.
#define KVTRIAGE_ASSIGN_OR_RETURN(declaration, expression)                                   \
  KVTRIAGE_ASSIGN_OR_RETURN_IMPL(KVTRIAGE_CONCAT(kvtriage_statusor_, __LINE__), declaration, \
                                 expression)
#define KVTRIAGE_ASSIGN_OR_RETURN_IMPL(statusor, declaration, expression) \
  auto statusor = (expression);                                           \
  if (!statusor.ok()) return statusor.status();                           \
  declaration = std::move(statusor).value()

#endif  // KVTRIAGE_KERNELS_CORE_STATUS_MACROS_H_
