#include "tests/gpu/ceilings.h"

#include "tests/gpu/device.h"
#include "tests/gpu/mma_chain.h"

namespace kvtriage::gpu {

constexpr int kRepeats = 20;

Ceilings MeasureCeilings(uint64_t copied, uint32_t rounds, cudaStream_t stream) {
  Ceilings found{};
  {
    const DeviceBuffer from(copied), to(copied);
    Must(cudaMemsetAsync(from.data(), 1, copied, stream), "cudaMemsetAsync");
    const double seconds = BestSecondsOf(stream, kRepeats, [&] {
      Must(cudaMemcpyAsync(to.data(), from.data(), copied, cudaMemcpyDeviceToDevice, stream),
           "copy on the device");
    });
    found.copy = 2.0 * static_cast<double>(copied) / seconds;
  }
  int device = 0, multiprocessors = 1;
  Must(cudaGetDevice(&device), "cudaGetDevice");
  Must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
       "cudaDeviceGetAttribute");
  const auto blocks = static_cast<uint32_t>(2 * multiprocessors);
  const DeviceBuffer sums(blocks * sizeof(float));
  const double seconds = BestSecondsOf(stream, kRepeats, [&] {
    Must(LaunchMmaChain(reinterpret_cast<float*>(sums.data()), blocks, rounds, stream),
         "the chain of products");
  });
  found.mma = ChainFlops(blocks, rounds) / seconds;
  return found;
}

}  // namespace kvtriage::gpu
