// The calls of the CUDA runtime and driver that we use, and nothing else: for builds without the
// CUDA Toolkit, which link the tests' stand-in. Names, numbers and meanings are CUDA 13.0's;
// tests/unit/fake_cuda/declarations_test.cc holds them against the real headers where there are
// some. Adding a call here means adding it to the stand-in.
#ifndef KVTRIAGE_KERNELS_CUDA_CUDA_DECLARATIONS_H_
#define KVTRIAGE_KERNELS_CUDA_CUDA_DECLARATIONS_H_

#include <cstddef>

// The test that compares declares them a second time, beside the toolkit's.
#if !defined(KVTRIAGE_CUDA_LINKAGE)
#define KVTRIAGE_CUDA_LINKAGE "C"
#endif
extern KVTRIAGE_CUDA_LINKAGE {
  // NOLINTBEGIN: the names are CUDA's.
  enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorDeviceUninitialized = 201,
    cudaErrorMapBufferObjectFailed = 205,
    cudaErrorAlreadyMapped = 208,
    cudaErrorECCUncorrectable = 214,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorTooManyPeers = 711,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999
  };

  enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
  };

  enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrIpcEventSupport = 125
  };

  enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

  enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2
  };

  inline constexpr unsigned int cudaStreamNonBlocking = 0x01;
  inline constexpr unsigned int cudaEventDisableTiming = 0x02;
  inline constexpr unsigned int cudaEventInterprocess = 0x04;
  inline constexpr unsigned int cudaHostAllocDefault = 0x00;
  inline constexpr unsigned int cudaIpcMemLazyEnablePeerAccess = 0x01;
  inline constexpr unsigned long long cudaEnableDefault = 0;

  struct CUuuid_st {
    char bytes[16];
  };
  typedef struct CUuuid_st cudaUUID_t;

  // Only its first fields: never to be passed to a real runtime, whose struct is longer.
  struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
  };

  struct cudaIpcMemHandle_t {
    char reserved[64];
  };
  struct cudaIpcEventHandle_t {
    char reserved[64];
  };

  typedef struct CUstream_st* cudaStream_t;
  typedef struct CUevent_st* cudaEvent_t;

  cudaError_t cudaGetDeviceCount(int* count);
  cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp * prop, int device);
  cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device);
  cudaError_t cudaSetDevice(int device);
  cudaError_t cudaGetDevice(int* device);
  cudaError_t cudaMemGetInfo(size_t * free, size_t * total);
  cudaError_t cudaDriverGetVersion(int* version);
  cudaError_t cudaRuntimeGetVersion(int* version);
  cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                               unsigned int version, unsigned long long flags,
                                               enum cudaDriverEntryPointQueryResult* result);
  cudaError_t cudaGetLastError(void);
  cudaError_t cudaPeekAtLastError(void);
  const char* cudaGetErrorName(cudaError_t error);

  cudaError_t cudaStreamCreateWithFlags(cudaStream_t * stream, unsigned int flags);
  cudaError_t cudaStreamDestroy(cudaStream_t stream);
  cudaError_t cudaStreamQuery(cudaStream_t stream);
  cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
  cudaError_t cudaEventCreateWithFlags(cudaEvent_t * event, unsigned int flags);
  cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
  cudaError_t cudaEventQuery(cudaEvent_t event);
  cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);
  cudaError_t cudaEventDestroy(cudaEvent_t event);

  cudaError_t cudaMalloc(void** pointer, size_t bytes);
  cudaError_t cudaFree(void* pointer);
  cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags);
  cudaError_t cudaFreeHost(void* pointer);
  cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
  cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream);

  cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t * handle, void* pointer);
  cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags);
  cudaError_t cudaIpcCloseMemHandle(void* pointer);
  cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t * handle, cudaEvent_t event);
  cudaError_t cudaIpcOpenEventHandle(cudaEvent_t * event, cudaIpcEventHandle_t handle);

  cudaError_t cudaFuncSetAttribute(const void* function, enum cudaFuncAttribute attribute,
                                   int value);
  cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                            int threads, size_t shared_bytes);

  // Driver: only through cudaGetDriverEntryPointByVersion.
  typedef int CUresult;
  typedef unsigned long long CUdeviceptr;
  enum CUmemorytype { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
  enum CUpointer_attribute {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17
  };
  CUresult cuMemGetAddressRange(CUdeviceptr * base, size_t * bytes, CUdeviceptr pointer);
  CUresult cuPointerGetAttribute(void* data, enum CUpointer_attribute attribute,
                                 CUdeviceptr pointer);
  // NOLINTEND

}  // extern

#endif  // KVTRIAGE_KERNELS_CUDA_CUDA_DECLARATIONS_H_
