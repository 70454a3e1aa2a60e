#include "tests/gpu/wrapper_dump.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/simt.h"

namespace kvtriage::gpu {
namespace {

constexpr uint32_t kCopyPlace = kMatrixBytes;  // in shared memory, behind the matrices

template <class Multiply>
SIMT_DEVICE void DumpProduct(const uint32_t (&a_from)[32][4], const uint32_t (&b_from)[32][2],
                             const uint32_t (&c_from)[32][4], uint32_t (&d_to)[32][4],
                             Multiply multiply) {
  const uint32_t lane = simt::ThreadX();
  uint32_t a[4], b[2];
  float d[4];
  SIMT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) a[i] = simt::Load(&a_from[lane][i]);
  SIMT_UNROLL
  for (uint32_t i = 0; i < 2; ++i) b[i] = simt::Load(&b_from[lane][i]);
  SIMT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) d[i] = simt::BitsFloat(simt::Load(&c_from[lane][i]));
  multiply(d, a, b);
  SIMT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) simt::Store(&d_to[lane][i], simt::FloatBits(d[i]));
}

template <uint32_t kCount, bool kTransposed>
SIMT_DEVICE void DumpMatrices(uint32_t (&to)[32][4]) {
  const uint32_t lane = simt::ThreadX();
  uint32_t r[kCount];
  simt::LdMatrix<kCount, kTransposed>(r, simt::SharedMemory(size_t{lane} * 16));
  SIMT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) simt::Store(&to[lane][i], i < kCount ? r[i] : 0u);
}

struct MultiplyBf16 {
  SIMT_DEVICE void operator()(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    simt::MmaBf16(d, a, b);
  }
};
struct MultiplyF16 {
  SIMT_DEVICE void operator()(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) const {
    simt::MmaF16(d, a, b);
  }
};

SIMT_KERNEL void SIMT_BOUNDS(32, 1) DumpWrappers(const WrapperInput* input, WrapperDump* dump) {
  const uint32_t lane = simt::ThreadX();
  DumpProduct(input->a_bf16, input->b_bf16, input->c, dump->mma_bf16, MultiplyBf16());
  DumpProduct(input->a_f16, input->b_f16, input->c, dump->mma_f16, MultiplyF16());

  const simt::Shared<uint16_t> matrices(simt::SharedMemory(0));
  for (uint32_t i = lane; i < kMatrixBytes / 2; i += 32) matrices[i] = static_cast<uint16_t>(i);
  simt::SyncWarp();
  DumpMatrices<1, false>(dump->ldmatrix[0]);
  DumpMatrices<2, false>(dump->ldmatrix[1]);
  DumpMatrices<4, false>(dump->ldmatrix[2]);
  DumpMatrices<1, true>(dump->ldmatrix[3]);
  DumpMatrices<2, true>(dump->ldmatrix[4]);
  DumpMatrices<4, true>(dump->ldmatrix[5]);

  for (uint32_t i = lane; i < kExponents; i += 32) {
    const float x = simt::BitsFloat(simt::Load(&input->exponents[i]));
    simt::Store(&dump->exp2[i], simt::FloatBits(simt::Exp2Approx(x)));
  }

  const simt::Shared<uint32_t> copied(simt::SharedMemory(kCopyPlace));
  if (lane < kCopySizes) {
    for (uint32_t i = 0; i < 4; ++i) copied[4 * lane + i] = 0xDDDDDDDDu;
    simt::AsyncCopy16(copied.data() + 4 * lane, input->copy_source, lane);
  }
  simt::AsyncCommit();
  simt::AsyncWait<0>();
  simt::SyncWarp();
  if (lane < kCopySizes) {
    for (uint32_t i = 0; i < 4; ++i)
      simt::Store(&dump->copy[lane][i], uint32_t{copied[4 * lane + i]});
  }
}

}  // namespace

cudaError_t LaunchWrapperDump(const WrapperInput* input, WrapperDump* dump, cudaStream_t stream) {
  LaunchShape shape;
  shape.threads = 32;
  shape.shared_bytes = kCopyPlace + kCopySizes * 16;
  return LaunchKernel(DumpWrappers, shape, stream, input, dump);
}

}  // namespace kvtriage::gpu
