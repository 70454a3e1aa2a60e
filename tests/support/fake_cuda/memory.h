// "Device" memory: files of the folder, mapped by the process that allocated them and by those that
// opened their handles.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_MEMORY_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace kvtriage::fake_cuda {

struct Allocation {
  std::byte* base = nullptr;
  uint64_t bytes = 0;       // as asked for
  uint64_t file_bytes = 0;  // in steps of 2 MiB
  int device = 0;
  std::string name;  // of the file
  std::string kind;  // empty: cudaMalloc
  int fd = -1;       // of our own allocations: holds the lock that says that we live
  uint64_t inode = 0;
  uint32_t opened = 0;     // > 0: another process's, so often
  uint64_t buffer_id = 0;  // of our own allocations: no other in this process has or had it
};

// The allocation or mapping that holds [pointer, pointer + bytes).
std::optional<Allocation> FindAllocation(const void* pointer, uint64_t bytes);

bool IsPinned(const void* pointer);

// Of all processes that use the folder.
uint64_t BytesInUse(int device);

// While it lives, device memory may be touched (script word guard).
class Touching {
 public:
  Touching();
  ~Touching();
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;
};

}  // namespace kvtriage::fake_cuda

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_MEMORY_H_
