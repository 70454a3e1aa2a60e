// Streams: a queue and a thread each.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_STREAM_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_STREAM_H_

#include <functional>

#include "kernels/cuda/cuda_api.h"

namespace kvtriage::fake_cuda {

// Runs `work` on the stream's thread, after what was put in before; how late, the script's seed
// says.
void Enqueue(cudaStream_t stream, std::function<void()> work);
// Until all that is in the stream has run.
void Drain(cudaStream_t stream);
// All streams of a device.
void DrainDevice(int device);

}  // namespace kvtriage::fake_cuda

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_STREAM_H_
