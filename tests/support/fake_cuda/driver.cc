// The stand-in as a library that a program loads in libcuda's place: the driver's calls over the
// runtime's, contexts, and the script and the counts under plain names.
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/driver_calls.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/stream.h"

struct CUctx_st {
  int device = 0;
  bool active = false;
};

namespace kvtriage::fake_cuda {
namespace {

std::array<CUctx_st, kMaxDevices> contexts;  // the primary ones
thread_local std::vector<CUcontext> current;

bool IsContext(CUcontext context) {
  return context >= contexts.data() && context < contexts.data() + contexts.size() &&
         context->active;
}

void SetDeviceOfTop() {
  if (current.empty()) {
    SetNoDevice();
  } else {
    cudaSetDevice(current.back()->device);
  }
}

void* Pointer(CUdeviceptr pointer) { return std::bit_cast<void*>(static_cast<uintptr_t>(pointer)); }

cudaError_t PropertiesOf(CUdevice device, cudaDeviceProp& properties) {
  return cudaGetDeviceProperties(&properties, device);
}

}  // namespace
}  // namespace kvtriage::fake_cuda

using namespace kvtriage::fake_cuda;

extern "C" {

// For tests: fake_cuda.h's Script and Counts.
int kvtriage_fake_cuda_script(const char* text) { return Script(text) ? 0 : 1; }
uint64_t kvtriage_fake_cuda_count(const char* name) { return Counts()[name]; }

CUresult cuInit(unsigned int flags) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  return flags == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

CUresult cuDeviceGetCount(int* count) { return cudaGetDeviceCount(count); }

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  cudaDeviceProp properties;
  *device = ordinal;
  return PropertiesOf(ordinal, properties);
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = PropertiesOf(device, properties); error != cudaSuccess)
    return error;
  std::strncpy(name, properties.name, static_cast<size_t>(bytes) - 1);
  name[bytes - 1] = '\0';
  return cudaSuccess;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = PropertiesOf(device, properties); error != cudaSuccess)
    return error;
  std::memcpy(uuid->bytes, properties.uuid.bytes, sizeof uuid->bytes);
  return cudaSuccess;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  cudaDeviceProp properties;
  if (const cudaError_t error = PropertiesOf(device, properties); error != cudaSuccess)
    return error;
  *flags = 0;
  *active = contexts[static_cast<size_t>(device)].active ? 1 : 0;
  return cudaSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  cudaDeviceProp properties;
  if (const cudaError_t error = PropertiesOf(device, properties); error != cudaSuccess)
    return error;
  CUctx_st& primary = contexts[static_cast<size_t>(device)];
  primary = {.device = device, .active = true};
  *context = &primary;
  return cudaSuccess;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  *context = current.empty() ? nullptr : current.back();
  return cudaSuccess;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  if (!IsContext(context)) return cudaErrorDeviceUninitialized;
  current.push_back(context);
  SetDeviceOfTop();
  return cudaSuccess;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDriver);
  if (current.empty()) return cudaErrorDeviceUninitialized;
  *context = current.back();
  current.pop_back();
  SetDeviceOfTop();
  return cudaSuccess;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  return cuMemGetAddressRange(base, bytes, pointer);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  cudaIpcMemHandle_t made;
  const cudaError_t error = cudaIpcGetMemHandle(&made, Pointer(pointer));
  if (error == cudaSuccess) std::memcpy(handle->reserved, made.reserved, sizeof made.reserved);
  return error;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  void* made = nullptr;
  const cudaError_t error = cudaMalloc(&made, bytes);
  *pointer = reinterpret_cast<uintptr_t>(made);
  return error;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) { return cudaFree(Pointer(pointer)); }

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return cudaStreamCreateWithFlags(stream, flags);
}

CUresult cuStreamSynchronize(CUstream stream) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  Drain(stream);
  return cudaSuccess;
}

CUresult cuStreamDestroy_v2(CUstream stream) { return cudaStreamDestroy(stream); }

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return cudaMemcpyAsync(to, Pointer(from), bytes, cudaMemcpyDeviceToHost, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return cudaMemcpyAsync(Pointer(to), from, bytes, cudaMemcpyHostToDevice, stream);
}

}  // extern "C"
