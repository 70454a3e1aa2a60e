// Devices: which one a thread has set, and which are lost.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_DEVICE_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::fake_cuda {

inline constexpr uint64_t kMaxDevices = 8;
inline constexpr size_t kSharedBytesPerBlock = 227 * 1024;  // with the attribute; 48 KiB without
inline constexpr size_t kSharedBytesByDefault = 48 * 1024;

bool HasSetDevice();
void SetNoDevice();  // as before its first cudaSetDevice
// Of the calling thread's device; cudaSuccess when it is well.
cudaError_t StickyError();
void MakeSticky(cudaError_t error);
void ForgetSticky();

// What cudaFuncSetAttribute allowed a kernel.
size_t SharedBytesAllowed(const void* function);

}  // namespace kvtriage::fake_cuda

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_DEVICE_H_
