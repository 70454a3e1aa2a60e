// Results of the instructions behind kernels/cuda/simt.h whose meaning the emulator and the kernels
// take from the same reading of the PTX ISA: fragments of mma, ldmatrix, 2^x, zero-filling copies.
#ifndef KVTRIAGE_TESTS_GPU_WRAPPER_DUMP_H_
#define KVTRIAGE_TESTS_GPU_WRAPPER_DUMP_H_

#include <cstdint>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::gpu {

inline constexpr uint32_t kExponents = 512;
inline constexpr uint32_t kCopySizes = 17;  // 0..16 bytes
inline constexpr uint32_t kMatrixBytes = 4 * 8 * 16;

// In device memory. All of one warp; [lane][register].
struct WrapperDump {
  uint32_t mma_bf16[32][4], mma_f16[32][4];  // float bits of D
  uint32_t ldmatrix[6][32][4];               // x1, x2, x4, then transposed; unused registers 0
  uint32_t exp2[kExponents];                 // float bits of 2^x
  uint32_t copy[kCopySizes][4];              // 16 bytes of shared memory after each copy
};

// Operands of the products, [lane][register], two 16-bit numbers a register.
struct WrapperInput {
  uint32_t a_bf16[32][4], b_bf16[32][2];
  uint32_t a_f16[32][4], b_f16[32][2];
  uint32_t c[32][4];  // float bits: what the sums start from
  uint32_t exponents[kExponents];
  uint32_t copy_source[4];
};

// One warp. Shared memory of ldmatrix holds the 16-bit numbers 0, 1, 2, ...; lane l's row is row l.
cudaError_t LaunchWrapperDump(const WrapperInput* input, WrapperDump* dump, cudaStream_t stream);

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_WRAPPER_DUMP_H_
