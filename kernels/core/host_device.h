// Marks functions that kernels for a device may call too.
#ifndef KVTRIAGE_KERNELS_CORE_HOST_DEVICE_H_
#define KVTRIAGE_KERNELS_CORE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define KVTRIAGE_HOST_DEVICE __host__ __device__
#else
#define KVTRIAGE_HOST_DEVICE
#endif

#endif  // KVTRIAGE_KERNELS_CORE_HOST_DEVICE_H_
