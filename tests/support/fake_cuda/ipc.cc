// Handles of memory, and the driver calls about pointers.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <string>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/memory_table.h"
#include "tests/support/fake_cuda/stream.h"

using namespace kvtriage::fake_cuda;

namespace {

struct HandleBytes {
  char magic[8];
  int32_t device;
  int32_t exporter;
  uint64_t bytes, file_bytes;
  char name[32];
};
static_assert(sizeof(HandleBytes) == sizeof(cudaIpcMemHandle_t));
constexpr char kMagic[8] = {'k', 'v', 't', 'f', 'a', 'k', 'e', 'm'};

// The exporter holds an exclusive lock as long as it lives.
bool ExporterIsDead(int fd) {
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return false;
  flock(fd, LOCK_UN);
  return true;
}

cudaError_t MapHandle(const HandleBytes& handle, void** pointer) {
  char name[sizeof handle.name + 1] = {};
  std::memcpy(name, handle.name, sizeof handle.name);
  if (std::strchr(name, '/') != nullptr) return cudaErrorInvalidValue;
  const int fd = open(PathOf(name).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return static_cast<cudaError_t>(CurrentSettings().freed);
  struct stat facts;
  fstat(fd, &facts);
  const int dead = CurrentSettings().dead;
  if (dead != 0 && ExporterIsDead(fd)) {
    close(fd);
    return static_cast<cudaError_t>(dead);
  }
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  for (auto& [base, allocation] : Memory().allocations) {
    if (allocation.opened > 0 && allocation.inode == facts.st_ino) {
      close(fd);
      ++allocation.opened;
      *pointer = base;
      return cudaSuccess;
    }
  }
  void* mapped = mmap(nullptr, handle.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return cudaErrorMapBufferObjectFailed;
  auto* base = static_cast<std::byte*>(mapped);
  Memory().allocations[base] = {.base = base,
                                .bytes = handle.bytes,
                                .file_bytes = handle.file_bytes,
                                .device = CurrentDevice(),
                                .name = name,
                                .kind = "",
                                .fd = -1,
                                .inode = facts.st_ino,
                                .opened = 1};
  if (CurrentSettings().guard && Memory().touching == 0) {
    mprotect(mapped, handle.file_bytes, PROT_NONE);
  }
  AddToCount("mappings", 1);
  *pointer = mapped;
  return cudaSuccess;
}

const void* Pointer(CUdeviceptr pointer) {
  return std::bit_cast<const void*>(static_cast<uintptr_t>(pointer));
}

}  // namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  const auto allocation = FindAllocation(pointer, 1);
  if (!allocation || allocation->opened > 0 || !allocation->kind.empty()) {
    return Leave(cudaErrorInvalidValue);
  }
  HandleBytes bytes{};
  std::memcpy(bytes.magic, kMagic, sizeof kMagic);
  bytes.device = allocation->device;
  bytes.exporter = getpid();
  bytes.bytes = allocation->bytes;
  bytes.file_bytes = allocation->file_bytes;
  std::memcpy(bytes.name, allocation->name.data(), allocation->name.size());
  std::memcpy(handle->reserved, &bytes, sizeof bytes);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  HandleBytes bytes;
  std::memcpy(&bytes, handle.reserved, sizeof bytes);
  if (flags != cudaIpcMemLazyEnablePeerAccess ||
      std::memcmp(bytes.magic, kMagic, sizeof kMagic) != 0) {
    return Leave(cudaErrorInvalidValue);
  }
  if (bytes.exporter == getpid()) return Leave(cudaErrorDeviceUninitialized);
  return Leave(MapHandle(bytes, pointer));
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  DrainDevice(CurrentDevice());
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().allocations.find(static_cast<std::byte*>(pointer));
  if (found == Memory().allocations.end() || found->second.opened == 0) {
    return Leave(cudaErrorInvalidValue);
  }
  if (--found->second.opened > 0) return cudaSuccess;
  munmap(pointer, found->second.file_bytes);
  Memory().allocations.erase(found);
  AddToCount("mappings", -1);
  return cudaSuccess;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  if (const auto early = EnterCall(__func__, Needs::kDevice); early.has_value()) return *early;
  const auto allocation = FindAllocation(Pointer(pointer), 1);
  if (!allocation) return cudaErrorInvalidValue;
  *base = reinterpret_cast<uintptr_t>(allocation->base);
  *bytes = allocation->bytes;
  return cudaSuccess;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (const auto early = EnterCall(__func__, Needs::kDevice); early.has_value()) return *early;
  const auto set = [data](auto value) { std::memcpy(data, &value, sizeof value); };
  const auto allocation = FindAllocation(Pointer(pointer), 1);
  if (!allocation) {
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE || !IsPinned(Pointer(pointer))) {
      return cudaErrorInvalidValue;
    }
    set(CU_MEMORYTYPE_HOST);
    return cudaSuccess;
  }
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      set(CU_MEMORYTYPE_DEVICE);
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      set(static_cast<unsigned long long>(allocation->buffer_id));
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      set(static_cast<unsigned int>(allocation->kind == "managed"));
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      set(allocation->device);
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      set(allocation->kind.empty());
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      set(static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(allocation->base)));
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      set(static_cast<size_t>(allocation->bytes));
      return cudaSuccess;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      set(allocation->kind == "pool" ? static_cast<void*>(allocation->base) : nullptr);
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  *function = nullptr;
  if (std::strcmp(symbol, "cuMemGetAddressRange") == 0) {
    *function = reinterpret_cast<void*>(&cuMemGetAddressRange);
  } else if (std::strcmp(symbol, "cuPointerGetAttribute") == 0) {
    *function = reinterpret_cast<void*>(&cuPointerGetAttribute);
  }
  *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
