// What the CUDA driver knows about a pointer.
#ifndef KVTRIAGE_CLIENT_CPP_CUDA_POINTER_H_
#define KVTRIAGE_CLIENT_CPP_CUDA_POINTER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace kvtriage::client {

// An allocation that a legacy IPC handle exports.
struct ExportableAllocation {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
  int device = 0;   // ordinal in this process
  uint64_t id = 0;  // > 0; no other allocation of this process has or had it
};

// The allocation that holds `pointer`. Errors are LendDeviceMemory's.
absl::StatusOr<ExportableAllocation> FindAllocation(const void* pointer);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_CUDA_POINTER_H_
