// What the device itself can do, measured in the same process as what is compared with it.
#ifndef KVTRIAGE_TESTS_GPU_CEILINGS_H_
#define KVTRIAGE_TESTS_GPU_CEILINGS_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::gpu {

struct Ceilings {
  double copy;  // bytes read + bytes written of a device copy, per second
  double mma;   // bf16 FLOP per second of mma.sync.m16n8k16 from registers
};

// `copied` bytes, twice that on the device; `rounds` matrix instructions of each chain.
Ceilings MeasureCeilings(uint64_t copied, uint32_t rounds, cudaStream_t stream);

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_CEILINGS_H_
