// All that this process has allocated or opened. Shared by memory.cc and ipc.cc.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_MEMORY_TABLE_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_MEMORY_TABLE_H_

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/memory.h"

namespace kvtriage::fake_cuda {

struct MemoryTable {
  std::mutex mutex;
  std::map<std::byte*, Allocation> allocations;  // by base
  std::map<const std::byte*, uint64_t> pinned;   // host memory
  // Names of freed allocations by (device, file size): a new one gets the newest of them, so that
  // its handle has the bytes of the old one.
  std::map<std::pair<int, uint64_t>, std::vector<std::string>> freed_names;
  uint64_t next_buffer_id = 1;
  int touching = 0;
};

MemoryTable& Memory();
std::string PathOf(const std::string& name);

}  // namespace kvtriage::fake_cuda

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_MEMORY_TABLE_H_
