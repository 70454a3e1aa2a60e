#include "tests/support/fake_cuda/stream.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "kernels/core/splitmix64.h"
#include "tests/support/fake_cuda/call.h"

struct CUstream_st {
  explicit CUstream_st(int on_device) : device(on_device), thread([this] { Run(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }

  void Put(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(std::move(work));
    ++waiting_or_running;
    changed.notify_all();
  }

  bool Idle() {
    const std::lock_guard<std::mutex> lock(mutex);
    ++asked;
    changed.notify_all();
    return waiting_or_running == 0;
  }

  void WaitIdle() {
    std::unique_lock<std::mutex> lock(mutex);
    ++drains;
    changed.notify_all();
    changed.wait(lock, [this] { return waiting_or_running == 0; });
    --drains;
  }

  const int device;

 private:
  // A piece of work starts after some polls of the stream or some milliseconds, whichever is first;
  // how many of them, the seed says. At once when somebody waits for the stream's end.
  void Dawdle(std::unique_lock<std::mutex>& lock) {
    const uint64_t seed = kvtriage::fake_cuda::CurrentSettings().seed;
    if (seed == 0) return;
    const uint64_t patience = kvtriage::SplitMix64(seed, number) % 4;
    const uint64_t until = asked + patience;
    changed.wait_for(lock, std::chrono::milliseconds(3 * patience),
                     [&] { return asked >= until || drains > 0 || ending; });
  }

  void Run() {
    cudaSetDevice(device);
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !queue.empty() || ending; });
      if (queue.empty()) return;
      Dawdle(lock);
      std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      ++number;
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      --waiting_or_running;
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  uint64_t waiting_or_running = 0, asked = 0, number = 0;
  int drains = 0;
  bool ending = false;
  std::thread thread;
};

namespace kvtriage::fake_cuda {
namespace {

std::mutex streams_mutex;
std::set<cudaStream_t>& Streams() {
  static auto* streams = new std::set<cudaStream_t>();
  return *streams;
}

bool IsStream(cudaStream_t stream) {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  return Streams().contains(stream);
}

}  // namespace

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  if (!IsStream(stream)) Misuse("a stream", "it was not made by cudaStreamCreateWithFlags");
  stream->Put(std::move(work));
}

void Drain(cudaStream_t stream) { stream->WaitIdle(); }

void DrainDevice(int device) {
  std::set<cudaStream_t> streams;
  {
    const std::lock_guard<std::mutex> lock(streams_mutex);
    streams = Streams();
  }
  for (const cudaStream_t stream : streams) {
    if (stream->device == device) stream->WaitIdle();
  }
}

}  // namespace kvtriage::fake_cuda

using namespace kvtriage::fake_cuda;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (flags != cudaStreamNonBlocking) Misuse(__func__, "a stream has to be non-blocking");
  *stream = new CUstream_st(CurrentDevice());
  const std::lock_guard<std::mutex> lock(streams_mutex);
  Streams().insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  {
    const std::lock_guard<std::mutex> lock(streams_mutex);
    if (Streams().erase(stream) == 0) return Leave(cudaErrorInvalidResourceHandle);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (!IsStream(stream)) return Leave(cudaErrorInvalidResourceHandle);
  return stream->Idle() ? cudaSuccess : cudaErrorNotReady;
}

}  // extern "C"
