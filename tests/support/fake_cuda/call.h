// What every call of the stand-in starts with: the script, the counters, the last error.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_CALL_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_CALL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::fake_cuda {

struct Settings {
  int devices = 1;
  uint64_t memory = uint64_t{1} << 30;
  uint64_t seed = 0;
  int dead = 0;
  int freed = 400;
  bool guard = false;
};
Settings CurrentSettings();

// The folder of allocations; empty when there is no driver.
const std::string& Folder();

enum class Needs { kNothing, kDriver, kDevice };

// Counts the call and does what the script says (waits, hangs). What the call must return at once:
// the script's error, a sticky error, a missing driver or device. Nothing: the call goes on.
std::optional<cudaError_t> EnterCall(const char* name, Needs needs);

// Remembers an error for cudaGetLastError and returns it.
cudaError_t Leave(cudaError_t error);

// The calling thread's device.
int CurrentDevice();

// The kind that the script gives to this cudaMalloc; empty: ordinary. After
// EnterCall("cudaMalloc").
std::string ScriptedKind();

// For counts that are states: allocations, mappings.
void AddToCount(const char* name, int64_t change);

// Says what was done wrong; ends the process.
[[noreturn]] void Misuse(const char* call, const char* what);

}  // namespace kvtriage::fake_cuda

// Opens a call's body: returns early with what EnterCall says.
#define KVTRIAGE_FAKE_CUDA_ENTER(needs)                                                  \
  do {                                                                                   \
    const auto early =                                                                   \
        ::kvtriage::fake_cuda::EnterCall(__func__, ::kvtriage::fake_cuda::Needs::needs); \
    if (early.has_value()) return ::kvtriage::fake_cuda::Leave(*early);                  \
  } while (false)

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_CALL_H_
