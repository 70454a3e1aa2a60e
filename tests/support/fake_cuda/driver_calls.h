// Calls of the CUDA driver that programs without the runtime make, by the names that libcuda
// exports. tests/unit/fake_cuda/declarations_test.cc holds them against the toolkit's header.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_DRIVER_CALLS_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_DRIVER_CALLS_H_

#ifndef KVTRIAGE_CUDA_LINKAGE
#include "kernels/cuda/cuda_api.h"
#define KVTRIAGE_CUDA_LINKAGE "C"
#endif

extern KVTRIAGE_CUDA_LINKAGE {
  // NOLINTBEGIN: the toolkit's names
  typedef int CUdevice;
  typedef struct CUctx_st* CUcontext;
  typedef struct CUstream_st* CUstream;
  typedef struct CUuuid_st CUuuid;
  typedef struct CUipcMemHandle_st {
    char reserved[64];
  } CUipcMemHandle;

  CUresult cuInit(unsigned int flags);
  CUresult cuDeviceGetCount(int* count);
  CUresult cuDeviceGet(CUdevice * device, int ordinal);
  CUresult cuDeviceGetName(char* name, int bytes, CUdevice device);
  CUresult cuDeviceGetUuid_v2(CUuuid * uuid, CUdevice device);
  CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active);
  CUresult cuDevicePrimaryCtxRetain(CUcontext * context, CUdevice device);
  CUresult cuCtxGetCurrent(CUcontext * context);
  CUresult cuCtxPushCurrent_v2(CUcontext context);
  CUresult cuCtxPopCurrent_v2(CUcontext * context);
  CUresult cuMemGetAddressRange_v2(CUdeviceptr * base, size_t * bytes, CUdeviceptr pointer);
  CUresult cuIpcGetMemHandle(CUipcMemHandle * handle, CUdeviceptr pointer);
  CUresult cuMemAlloc_v2(CUdeviceptr * pointer, size_t bytes);
  CUresult cuMemFree_v2(CUdeviceptr pointer);
  CUresult cuStreamCreate(CUstream * stream, unsigned int flags);
  CUresult cuStreamSynchronize(CUstream stream);
  CUresult cuStreamDestroy_v2(CUstream stream);
  CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream);
  // NOLINTEND
}  // extern

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_DRIVER_CALLS_H_
