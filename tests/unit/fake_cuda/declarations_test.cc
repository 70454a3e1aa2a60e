// Our own declarations of CUDA's calls, held against the toolkit's headers. Ours come in a
// namespace of their own; nothing is called.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <tuple>
#include <type_traits>

// Macros of the toolkit, kept as numbers and types so that ours can be declared by the same names.
namespace toolkit {
constexpr long long stream_non_blocking = cudaStreamNonBlocking;
constexpr long long event_disable_timing = cudaEventDisableTiming;
constexpr long long event_interprocess = cudaEventInterprocess;
constexpr long long host_alloc_default = cudaHostAllocDefault;
constexpr long long lazy_peer_access = cudaIpcMemLazyEnablePeerAccess;
using AddressRange = decltype(&cuMemGetAddressRange);
}  // namespace toolkit
#undef cudaStreamNonBlocking
#undef cudaEventDisableTiming
#undef cudaEventInterprocess
#undef cudaHostAllocDefault
#undef cudaIpcMemLazyEnablePeerAccess
#undef cuMemGetAddressRange

#define KVTRIAGE_CUDA_LINKAGE "C++"
namespace ours {
#include "kernels/cuda/cuda_declarations.h"
#include "tests/support/fake_cuda/driver_calls.h"
}  // namespace ours

namespace kvtriage {
namespace {

// Two types that a call cannot tell apart: pointers, or integers and enums of one size and class.
template <class A, class B>
constexpr bool SameAbi() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  } else if constexpr (std::is_class_v<A> || std::is_class_v<B>) {
    return std::is_class_v<A> && std::is_class_v<B> && sizeof(A) == sizeof(B);
  } else {
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}

template <class A, class B>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return SameAbi<R, S>() && (SameAbi<A, B>() && ...);
    }
  }();
};

#define KVTRIAGE_SAME_CALL(name)                                           \
  static_assert(SameCall<decltype(&::name), decltype(&ours::name)>::value, \
                #name " differs from the toolkit's")
#define KVTRIAGE_SAME_NUMBER(name) \
  static_assert(static_cast<long long>(::name) == static_cast<long long>(ours::name))

KVTRIAGE_SAME_CALL(cudaGetDeviceCount);
KVTRIAGE_SAME_CALL(cudaGetDeviceProperties);
KVTRIAGE_SAME_CALL(cudaDeviceGetAttribute);
KVTRIAGE_SAME_CALL(cudaSetDevice);
KVTRIAGE_SAME_CALL(cudaGetDevice);
KVTRIAGE_SAME_CALL(cudaMemGetInfo);
KVTRIAGE_SAME_CALL(cudaDriverGetVersion);
KVTRIAGE_SAME_CALL(cudaRuntimeGetVersion);
KVTRIAGE_SAME_CALL(cudaGetDriverEntryPointByVersion);
KVTRIAGE_SAME_CALL(cudaGetLastError);
KVTRIAGE_SAME_CALL(cudaPeekAtLastError);
KVTRIAGE_SAME_CALL(cudaGetErrorName);
KVTRIAGE_SAME_CALL(cudaStreamCreateWithFlags);
KVTRIAGE_SAME_CALL(cudaStreamDestroy);
KVTRIAGE_SAME_CALL(cudaStreamQuery);
KVTRIAGE_SAME_CALL(cudaStreamWaitEvent);
KVTRIAGE_SAME_CALL(cudaEventQuery);
KVTRIAGE_SAME_CALL(cudaEventRecord);
KVTRIAGE_SAME_CALL(cudaEventElapsedTime);
KVTRIAGE_SAME_CALL(cudaEventDestroy);
KVTRIAGE_SAME_CALL(cudaFree);
KVTRIAGE_SAME_CALL(cudaFreeHost);
KVTRIAGE_SAME_CALL(cudaMemcpyAsync);
KVTRIAGE_SAME_CALL(cudaMemsetAsync);
KVTRIAGE_SAME_CALL(cudaIpcGetMemHandle);
KVTRIAGE_SAME_CALL(cudaIpcOpenMemHandle);
KVTRIAGE_SAME_CALL(cudaIpcCloseMemHandle);
KVTRIAGE_SAME_CALL(cudaIpcGetEventHandle);
KVTRIAGE_SAME_CALL(cudaIpcOpenEventHandle);
KVTRIAGE_SAME_CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
static_assert(SameCall<toolkit::AddressRange, decltype(&ours::cuMemGetAddressRange)>::value);
KVTRIAGE_SAME_CALL(cuPointerGetAttribute);
KVTRIAGE_SAME_CALL(cuInit);
KVTRIAGE_SAME_CALL(cuDeviceGetCount);
KVTRIAGE_SAME_CALL(cuDeviceGet);
KVTRIAGE_SAME_CALL(cuDeviceGetName);
KVTRIAGE_SAME_CALL(cuDeviceGetUuid_v2);
KVTRIAGE_SAME_CALL(cuDevicePrimaryCtxGetState);
KVTRIAGE_SAME_CALL(cuDevicePrimaryCtxRetain);
KVTRIAGE_SAME_CALL(cuCtxGetCurrent);
KVTRIAGE_SAME_CALL(cuCtxPushCurrent_v2);
KVTRIAGE_SAME_CALL(cuCtxPopCurrent_v2);
KVTRIAGE_SAME_CALL(cuMemGetAddressRange_v2);
KVTRIAGE_SAME_CALL(cuIpcGetMemHandle);
KVTRIAGE_SAME_CALL(cuMemAlloc_v2);
KVTRIAGE_SAME_CALL(cuMemFree_v2);
KVTRIAGE_SAME_CALL(cuStreamCreate);
KVTRIAGE_SAME_CALL(cuStreamSynchronize);
KVTRIAGE_SAME_CALL(cuStreamDestroy_v2);
KVTRIAGE_SAME_CALL(cuMemcpyDtoHAsync_v2);
KVTRIAGE_SAME_CALL(cuMemcpyHtoDAsync_v2);
// The toolkit overloads these for C++; the plain forms have to fit.
static_assert(SameCall<cudaError_t (*)(void**, size_t), decltype(&ours::cudaMalloc)>::value);
static_assert(
    SameCall<cudaError_t (*)(void**, size_t, unsigned int), decltype(&ours::cudaHostAlloc)>::value);
static_assert(SameCall<cudaError_t (*)(cudaEvent_t*, unsigned int),
                       decltype(&ours::cudaEventCreateWithFlags)>::value);
static_assert(SameCall<cudaError_t (*)(const void*, cudaFuncAttribute, int),
                       decltype(&ours::cudaFuncSetAttribute)>::value);

KVTRIAGE_SAME_NUMBER(cudaSuccess);
KVTRIAGE_SAME_NUMBER(cudaErrorInvalidValue);
KVTRIAGE_SAME_NUMBER(cudaErrorMemoryAllocation);
KVTRIAGE_SAME_NUMBER(cudaErrorInitializationError);
KVTRIAGE_SAME_NUMBER(cudaErrorInvalidConfiguration);
KVTRIAGE_SAME_NUMBER(cudaErrorInsufficientDriver);
KVTRIAGE_SAME_NUMBER(cudaErrorInvalidDeviceFunction);
KVTRIAGE_SAME_NUMBER(cudaErrorNoDevice);
KVTRIAGE_SAME_NUMBER(cudaErrorInvalidDevice);
KVTRIAGE_SAME_NUMBER(cudaErrorDeviceUninitialized);
KVTRIAGE_SAME_NUMBER(cudaErrorMapBufferObjectFailed);
KVTRIAGE_SAME_NUMBER(cudaErrorAlreadyMapped);
KVTRIAGE_SAME_NUMBER(cudaErrorECCUncorrectable);
KVTRIAGE_SAME_NUMBER(cudaErrorPeerAccessUnsupported);
KVTRIAGE_SAME_NUMBER(cudaErrorInvalidResourceHandle);
KVTRIAGE_SAME_NUMBER(cudaErrorSymbolNotFound);
KVTRIAGE_SAME_NUMBER(cudaErrorNotReady);
KVTRIAGE_SAME_NUMBER(cudaErrorIllegalAddress);
KVTRIAGE_SAME_NUMBER(cudaErrorTooManyPeers);
KVTRIAGE_SAME_NUMBER(cudaErrorLaunchFailure);
KVTRIAGE_SAME_NUMBER(cudaErrorNotSupported);
KVTRIAGE_SAME_NUMBER(cudaErrorUnknown);
KVTRIAGE_SAME_NUMBER(cudaEnableDefault);
static_assert(toolkit::stream_non_blocking == ours::cudaStreamNonBlocking);
static_assert(toolkit::event_disable_timing == ours::cudaEventDisableTiming);
static_assert(toolkit::event_interprocess == ours::cudaEventInterprocess);
static_assert(toolkit::host_alloc_default == ours::cudaHostAllocDefault);
static_assert(toolkit::lazy_peer_access == ours::cudaIpcMemLazyEnablePeerAccess);
KVTRIAGE_SAME_NUMBER(cudaMemcpyHostToHost);
KVTRIAGE_SAME_NUMBER(cudaMemcpyHostToDevice);
KVTRIAGE_SAME_NUMBER(cudaMemcpyDeviceToHost);
KVTRIAGE_SAME_NUMBER(cudaMemcpyDeviceToDevice);
KVTRIAGE_SAME_NUMBER(cudaMemcpyDefault);
KVTRIAGE_SAME_NUMBER(cudaDevAttrMultiProcessorCount);
KVTRIAGE_SAME_NUMBER(cudaDevAttrL2CacheSize);
KVTRIAGE_SAME_NUMBER(cudaDevAttrComputeCapabilityMajor);
KVTRIAGE_SAME_NUMBER(cudaDevAttrComputeCapabilityMinor);
KVTRIAGE_SAME_NUMBER(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
KVTRIAGE_SAME_NUMBER(cudaDevAttrMaxSharedMemoryPerBlockOptin);
KVTRIAGE_SAME_NUMBER(cudaDevAttrIpcEventSupport);
KVTRIAGE_SAME_NUMBER(cudaFuncAttributeMaxDynamicSharedMemorySize);
KVTRIAGE_SAME_NUMBER(cudaDriverEntryPointSuccess);
KVTRIAGE_SAME_NUMBER(cudaDriverEntryPointSymbolNotFound);
KVTRIAGE_SAME_NUMBER(cudaDriverEntryPointVersionNotSufficent);
KVTRIAGE_SAME_NUMBER(CU_MEMORYTYPE_HOST);
KVTRIAGE_SAME_NUMBER(CU_MEMORYTYPE_DEVICE);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_BUFFER_ID);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_IS_MANAGED);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
KVTRIAGE_SAME_NUMBER(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
static_assert(sizeof(::cudaIpcMemHandle_t) == sizeof(ours::cudaIpcMemHandle_t));
static_assert(sizeof(::cudaIpcEventHandle_t) == sizeof(ours::cudaIpcEventHandle_t));
static_assert(offsetof(::cudaDeviceProp, uuid) == offsetof(ours::cudaDeviceProp, uuid));

TEST(CudaDeclarations, FitTheToolkit) { SUCCEED() << "the compiler has checked"; }

}  // namespace
}  // namespace kvtriage
