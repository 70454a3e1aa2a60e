#include "service/memory/cuda_driver.h"

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

constexpr unsigned int kDriverVersion = 12000;  // whose meaning of the calls is wanted

}  // namespace

absl::StatusOr<CudaDriver> CudaDriver::Find() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuMemGetAddressRange", &function, kDriverVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::Status(
        Error(ErrorReason::kNoDevice, "", "the driver is too old: it lacks a call that we need")
            .Got(static_cast<uint64_t>(error)));
  }
  CudaDriver driver;
  driver.address_range_ = reinterpret_cast<decltype(address_range_)>(function);
  return driver;
}

cudaError_t CudaDriver::RangeOf(const void* pointer, AddressRange& range) const {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  // The numbers of the two kinds of error are the same.
  const auto error = static_cast<cudaError_t>(address_range_(
      &base, &bytes, static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(pointer))));
  if (error != cudaSuccess) return error;
  range = {reinterpret_cast<std::byte*>(static_cast<uintptr_t>(base)), bytes};
  return cudaSuccess;
}

}  // namespace kvtriage
