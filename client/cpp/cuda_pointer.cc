#include "client/cpp/cuda_pointer.h"

#include "client/cpp/cuda_calls.h"
#include "client/cpp/local_error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

constexpr unsigned int kDriverVersion = 12000;  // whose meaning of the calls is wanted

absl::Status BadPointer(const char* text) {
  return LocalError(absl::StatusCode::kInvalidArgument, "bad_argument", text);
}

absl::Status VmmMemory(const char* text) {
  return LocalError(absl::StatusCode::kFailedPrecondition, "vmm_memory", text);
}

absl::StatusOr<void*> EntryPoint(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(
      cudaGetDriverEntryPointByVersion(name, &function, kDriverVersion, cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion");
  if (found == cudaDriverEntryPointSuccess && function != nullptr) return function;
  return LocalError(absl::StatusCode::kUnavailable, "no_device",
                    "the CUDA driver is too old: it lacks a call that we need");
}

// Found through the runtime: nothing links libcuda, so that a program starts without a driver.
class Driver {
 public:
  static absl::StatusOr<Driver> Find() {
    Driver driver;
    KVTRIAGE_ASSIGN_OR_RETURN(void* const range, EntryPoint("cuMemGetAddressRange"));
    KVTRIAGE_ASSIGN_OR_RETURN(void* const attribute, EntryPoint("cuPointerGetAttribute"));
    driver.range_ = reinterpret_cast<decltype(range_)>(range);
    driver.attribute_ = reinterpret_cast<decltype(attribute_)>(attribute);
    return driver;
  }

  // The numbers of driver and runtime errors are the same. `value` is 0 after an error; none of the
  // attributes has more than its 8 bytes.
  cudaError_t Ask(const void* pointer, CUpointer_attribute attribute, uint64_t& value) const {
    value = 0;
    const auto error = static_cast<cudaError_t>(attribute_(&value, attribute, Address(pointer)));
    if (error != cudaSuccess) value = 0;
    return error;
  }
  uint64_t Attribute(const void* pointer, CUpointer_attribute attribute) const {
    uint64_t value = 0;
    Ask(pointer, attribute, value);
    return value;
  }

  cudaError_t RangeOf(const void* pointer, ExportableAllocation& found) const {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    const auto error = static_cast<cudaError_t>(range_(&base, &bytes, Address(pointer)));
    found.base = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(base));
    found.bytes = bytes;
    return error;
  }

 private:
  static CUdeviceptr Address(const void* pointer) {
    return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(pointer));
  }

  decltype(&cuMemGetAddressRange) range_ = nullptr;
  decltype(&cuPointerGetAttribute) attribute_ = nullptr;
};

// Refuses what has no handle by its kind: after the fact, the driver would only say "invalid".
absl::Status CheckKind(const Driver& driver, const void* pointer) {
  if (driver.Attribute(pointer, CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0) {
    return VmmMemory(
        "managed memory has no IPC handle: allocate the cache with cudaMalloc, not "
        "cudaMallocManaged");
  }
  uint64_t type = 0;
  const cudaError_t error = driver.Ask(pointer, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type);
  if (error != cudaSuccess && error != cudaErrorInvalidValue) {
    return FromCuda(error, "cuPointerGetAttribute");
  }
  if (type != CU_MEMORYTYPE_DEVICE) {
    return BadPointer("the pointer is not one to memory of a CUDA device");
  }
  if (driver.Attribute(pointer, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) != 0) {
    return absl::OkStatus();
  }
  if (driver.Attribute(pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) != 0) {
    return VmmMemory(
        "memory of a stream-ordered pool (cudaMallocAsync) has no IPC handle: allocate the cache "
        "with cudaMalloc (PyTorch: PYTORCH_CUDA_ALLOC_CONF without backend:cudaMallocAsync)");
  }
  return VmmMemory(
      "memory of CUDA's virtual memory management (VMM) has no IPC handle: allocate the cache with "
      "cudaMalloc (PyTorch: PYTORCH_CUDA_ALLOC_CONF without expandable_segments:True; vLLM: "
      "without "
      "sleep mode; SGLang: without memory saver)");
}

}  // namespace

absl::StatusOr<ExportableAllocation> FindAllocation(const void* pointer) {
  KVTRIAGE_ASSIGN_OR_RETURN(const Driver driver, Driver::Find());
  KVTRIAGE_RETURN_IF_ERROR(CheckKind(driver, pointer));
  ExportableAllocation found;
  found.device = static_cast<int>(driver.Attribute(pointer, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
  // Drivers never use a number again, so it tells an allocation from a freed one at its place.
  found.id = driver.Attribute(pointer, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  KVTRIAGE_CLIENT_RETURN_IF_CUDA_ERROR(driver.RangeOf(pointer, found), "cuMemGetAddressRange");
  if (found.id == 0) {
    return LocalError(absl::StatusCode::kInternal, "cuda_call",
                      "the CUDA driver does not number the allocation");
  }
  return found;
}

}  // namespace kvtriage::client
