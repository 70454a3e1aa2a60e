// Kernels on a stream of the stand-in run in the emulator.
#include "kernels/emulation/launch.h"

#include <utility>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/memory.h"
#include "tests/support/fake_cuda/stream.h"

namespace kvtriage::emulation {

cudaError_t EnqueueGrid(const void* kernel, const GridShape& shape, cudaStream_t stream,
                        std::function<void()> thread) {
  using fake_cuda::EnterCall;
  using fake_cuda::Leave;
  if (const auto early = EnterCall("launch", fake_cuda::Needs::kDevice); early.has_value()) {
    return Leave(*early);
  }
  const uint64_t blocks = uint64_t{shape.blocks_x} * shape.blocks_y * shape.blocks_z;
  if (blocks == 0 || shape.blocks_y > 65535 || shape.blocks_z > 65535 || shape.threads == 0 ||
      shape.threads > 1024) {
    return Leave(cudaErrorInvalidConfiguration);
  }
  if (shape.shared_bytes > fake_cuda::SharedBytesAllowed(kernel)) {
    return Leave(cudaErrorInvalidValue);
  }
  fake_cuda::Enqueue(stream, [shape, thread = std::move(thread)] {
    const fake_cuda::Touching touching;
    RunGrid(shape, thread);
  });
  return cudaSuccess;
}

}  // namespace kvtriage::emulation
