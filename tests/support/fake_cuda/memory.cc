#include "tests/support/fake_cuda/memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/memory_table.h"
#include "tests/support/fake_cuda/stream.h"

namespace kvtriage::fake_cuda {
namespace {

constexpr uint64_t kStep = uint64_t{2} << 20;

std::string RandomName(int device) {
  static std::mutex mutex;
  static std::random_device source;
  const std::lock_guard<std::mutex> lock(mutex);
  char name[32];
  std::snprintf(name, sizeof name, "d%d-%08x%08x", device, source(), source());
  return name;
}

std::string NameFor(int device, uint64_t file_bytes) {
  auto& names = Memory().freed_names[{device, file_bytes}];
  if (names.empty()) return RandomName(device);
  std::string name = names.back();
  names.pop_back();
  return name;
}

void Protect(int protection) {
  for (const auto& [base, allocation] : Memory().allocations) {
    mprotect(base, allocation.file_bytes, protection);
  }
}

}  // namespace

MemoryTable& Memory() {
  static auto* table = new MemoryTable();  // outlives the threads of streams
  return *table;
}

std::string PathOf(const std::string& name) { return Folder() + "/" + name; }

std::optional<Allocation> FindAllocation(const void* pointer, uint64_t bytes) {
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  for (const auto& [base, allocation] : Memory().allocations) {
    if (at >= base && at < base + allocation.bytes &&
        bytes <= static_cast<uint64_t>(base + allocation.bytes - at)) {
      return allocation;
    }
  }
  return std::nullopt;
}

bool IsPinned(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto after = Memory().pinned.upper_bound(at);
  return after != Memory().pinned.begin() &&
         at < std::prev(after)->first + std::prev(after)->second;
}

uint64_t BytesInUse(int device) {
  uint64_t bytes = 0;
  const std::string prefix = "d" + std::to_string(device) + "-";
  DIR* folder = opendir(Folder().c_str());
  if (folder == nullptr) return 0;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) != 0) continue;
    struct stat facts;
    if (stat(PathOf(entry->d_name).c_str(), &facts) == 0)
      bytes += static_cast<uint64_t>(facts.st_size);
  }
  closedir(folder);
  return bytes;
}

Touching::Touching() {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  if (++Memory().touching == 1 && CurrentSettings().guard) Protect(PROT_READ | PROT_WRITE);
}

Touching::~Touching() {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  if (--Memory().touching == 0 && CurrentSettings().guard) Protect(PROT_NONE);
}

}  // namespace kvtriage::fake_cuda

using namespace kvtriage::fake_cuda;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const int device = CurrentDevice();
  Allocation made{.bytes = bytes, .device = device, .kind = ScriptedKind()};
  if (bytes > CurrentSettings().memory) return Leave(cudaErrorMemoryAllocation);
  made.file_bytes = (bytes + kStep - 1) / kStep * kStep;
  if (BytesInUse(device) + made.file_bytes > CurrentSettings().memory) {
    return Leave(cudaErrorMemoryAllocation);
  }
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  made.name = NameFor(device, made.file_bytes);
  made.buffer_id = Memory().next_buffer_id++;
  made.fd = open(PathOf(made.name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made.fd < 0 || ftruncate(made.fd, static_cast<off_t>(made.file_bytes)) != 0 ||
      flock(made.fd, LOCK_EX) != 0) {
    Misuse("cudaMalloc", "no file in the folder");
  }
  void* mapped = mmap(nullptr, made.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
  if (mapped == MAP_FAILED) return Leave(cudaErrorMemoryAllocation);
  std::memset(mapped, 0xFF, made.file_bytes);
  struct stat facts;
  fstat(made.fd, &facts);
  made.inode = facts.st_ino;
  made.base = static_cast<std::byte*>(mapped);
  if (CurrentSettings().guard && Memory().touching == 0) {
    mprotect(mapped, made.file_bytes, PROT_NONE);
  }
  Memory().allocations[made.base] = made;
  AddToCount("allocations", 1);
  *pointer = mapped;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (pointer == nullptr) return cudaSuccess;
  DrainDevice(CurrentDevice());
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().allocations.find(static_cast<std::byte*>(pointer));
  if (found == Memory().allocations.end() || found->second.opened > 0) {
    return Leave(cudaErrorInvalidValue);
  }
  const Allocation freed = found->second;
  Memory().allocations.erase(found);
  munmap(pointer, freed.file_bytes);
  unlink(PathOf(freed.name).c_str());
  close(freed.fd);
  Memory().freed_names[{freed.device, freed.file_bytes}].push_back(freed.name);
  AddToCount("allocations", -1);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int /*flags*/) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return Leave(cudaErrorMemoryAllocation);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().pinned[static_cast<std::byte*>(mapped)] = bytes;
  *pointer = mapped;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (pointer == nullptr) return cudaSuccess;
  DrainDevice(CurrentDevice());
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().pinned.find(static_cast<std::byte*>(pointer));
  if (found == Memory().pinned.end()) return Leave(cudaErrorInvalidValue);
  munmap(pointer, found->second);
  Memory().pinned.erase(found);
  return cudaSuccess;
}

}  // extern "C"
