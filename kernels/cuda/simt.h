// What a kernel may use, besides plain C++: one text for two compilers. nvcc turns these calls into
// CUDA and PTX (simt_device.h); every other compiler runs them in the emulator (simt_host.h).
//
// Rules that keep both true:
//   - shared memory is dynamic only, through SharedMemory(): blocks are interleaved on the CPU,
//   where
//     a static array would belong to all of them;
//   - no raw PTX and no CUDA built-ins in a kernel: what is missing gets a wrapper in both headers;
//   - global memory goes through Load and Store, shared memory through Shared<T>, so that the
//     emulator can count bytes, sectors and bank conflicts;
//   - a spin loop calls SpinPause(), else the emulator never runs the block that it waits for;
//   - blocks are one-dimensional.
//
// clang-format off
//   SIMT_KERNEL void Name(Args)              a kernel; SIMT_BOUNDS(threads, blocks) behind it
//   SIMT_DEVICE T Name(...)                  a function that kernels call; inlined
//   SIMT_UNROLL SIMT_UNROLL_BY(times)        before a loop
//   ThreadX() BlockX() BlockY() BlockZ() GridX() BlockThreads()
//   SharedMemory(byte offset)                dynamic shared memory, 128-byte aligned at offset 0
//   Load(p) Store(p, v)                      global memory, values of 1, 2, 4, 8 or 16 bytes, aligned
//   Shared<T>(bytes)[i]                      shared memory, counted access
//   SyncThreads() SyncNamed(id, threads) SyncWarp(mask)
//   ShuffleXor ShuffleDown ShuffleUp ShuffleFrom (mask, value, argument[, width])
//   Ballot(mask, p) MatchAny(mask, v) ReduceAdd/Min/Max/And/Or(mask, uint32_t)
//   AtomicAdd AtomicMax AtomicCas AtomicExchange     int32, uint32, uint64; relaxed
//   LoadAcquire(p) StoreRelease(p, v)        device scope; ...System: also the host, other devices
//   SpinPause()
//   MmaBf16 MmaF16 (d, a, b)                 m16n8k16, float32 sums; fragments as in the PTX ISA
//   LdMatrix<count, transposed>(r, row)      count = 1, 2, 4 matrices of 8 rows of 16 bytes
//   AsyncCopy16(shared, global, bytes)       the bytes behind become 0
//   AsyncCommit() AsyncWait<pending>()
//   MulRounded(a, b)                         a product that is not fused with a sum
//   Fma(a, b, c)                             a * b + c, rounded once
//   DivideApprox(a, b)                       a / b within 2 ulp, for b up to 2^126
//   Exp2Approx(x)                            2^x within 2 ulp, subnormal results flushed to 0
//   FloatBits(f) BitsFloat(u) Popcount(u) TrailingZeros(u)  (u != 0)
// clang-format on
#ifndef KVTRIAGE_KERNELS_CUDA_SIMT_H_
#define KVTRIAGE_KERNELS_CUDA_SIMT_H_

#if defined(__CUDACC__)
#include "kernels/cuda/simt_device.h"
#else
#include "kernels/emulation/simt_host.h"
#endif

#endif  // KVTRIAGE_KERNELS_CUDA_SIMT_H_
