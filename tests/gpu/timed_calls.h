// The calls whose speed performance.md's table for real devices asks for, on caches of
// Llama-3.1-8B.
#ifndef KVTRIAGE_TESTS_GPU_TIMED_CALLS_H_
#define KVTRIAGE_TESTS_GPU_TIMED_CALLS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/workspace.h"

namespace kvtriage::gpu {

// One row of the table.
struct TimedCall {
  std::string name;
  uint64_t bytes = 0;         // that have to move; 0: judged by seconds
  double must = 0, goal = 0;  // share of the ceiling, or seconds
  std::function<absl::Status()> call;
  double flops = 0;  // of matrix products; not 0: the ceiling is the mma.sync one, not the copy
};

struct TimedShape {
  uint32_t tokens, layers, kv_heads, row_elems, group;  // query heads of a KV head
};

// Calls on one cache: its memory lives as long as they do. Ends the process when it does not fit.
std::vector<TimedCall> CacheCalls(const TimedShape& shape, Workspace& workspace);
// `few` and `many` lists of one call.
std::vector<TimedCall> SelectCalls(uint32_t rows, uint32_t few, uint32_t many,
                                   Workspace& workspace);

// Device memory that CacheCalls will take.
uint64_t CacheBytes(const TimedShape& shape);

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_TIMED_CALLS_H_
