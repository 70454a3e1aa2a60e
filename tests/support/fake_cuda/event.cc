// Events: counters of how often one was recorded and how far that has run, in memory that processes
// share when the event is for several.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/memory_table.h"
#include "tests/support/fake_cuda/stream.h"

namespace {

struct EventState {
  std::atomic<uint64_t> recorded{0}, done{0};
  std::atomic<int64_t> done_ns{0};
};

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct CUevent_st {
  std::shared_ptr<EventState> state;
  unsigned int flags = 0;
  std::string name;  // of its file, when it is for several processes
  bool opened = false;
};

using namespace kvtriage::fake_cuda;

namespace {

struct EventHandleBytes {
  char magic[8];
  int32_t exporter;
  char name[52];
};
static_assert(sizeof(EventHandleBytes) == sizeof(cudaIpcEventHandle_t));
constexpr char kMagic[8] = {'k', 'v', 't', 'f', 'a', 'k', 'e', 'e'};

std::shared_ptr<EventState> MapState(const std::string& name, int open_flags) {
  const int fd = open(PathOf(name).c_str(), O_RDWR | O_CLOEXEC | open_flags, 0600);
  if (fd < 0) return nullptr;
  const bool sized = ftruncate(fd, sizeof(EventState)) == 0;
  void* mapped = sized
                     ? mmap(nullptr, sizeof(EventState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
  close(fd);
  if (mapped == MAP_FAILED) return nullptr;
  return {static_cast<EventState*>(mapped),
          [](EventState* state) { munmap(state, sizeof *state); }};
}

std::string RandomEventName() {
  std::random_device source;
  char name[32];
  std::snprintf(name, sizeof name, "event-%08x%08x", source(), source());
  return name;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  const bool shared = (flags & cudaEventInterprocess) != 0;
  if (shared && (flags & cudaEventDisableTiming) == 0) return Leave(cudaErrorInvalidValue);
  auto made = std::make_unique<CUevent_st>();
  made->flags = flags;
  if (shared) {
    made->name = RandomEventName();
    made->state = MapState(made->name, O_CREAT | O_EXCL);
    if (made->state == nullptr) return Leave(cudaErrorMemoryAllocation);
  } else {
    made->state = std::make_shared<EventState>();
  }
  *event = made.release();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (!event->name.empty() && !event->opened) unlink(PathOf(event->name).c_str());
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  const uint64_t number = ++event->state->recorded;
  Enqueue(stream, [state = event->state, number] {
    state->done_ns = NowNs();
    state->done = number;
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  return event->state->done >= event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  for (const cudaEvent_t event : {start, end}) {
    if ((event->flags & cudaEventDisableTiming) != 0 || event->state->recorded == 0) {
      return Leave(cudaErrorInvalidResourceHandle);
    }
    if (event->state->done < event->state->recorded) return Leave(cudaErrorNotReady);
  }
  *ms = static_cast<float>(end->state->done_ns - start->state->done_ns) * 1e-6f;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (flags != 0) return Leave(cudaErrorInvalidValue);
  // What was recorded last is what the stream waits for; a later record does not matter.
  Enqueue(stream, [state = event->state, number = event->state->recorded.load()] {
    while (state->done < number) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  if (event->name.empty()) return Leave(cudaErrorInvalidResourceHandle);
  EventHandleBytes bytes{};
  std::memcpy(bytes.magic, kMagic, sizeof kMagic);
  bytes.exporter = getpid();
  std::memcpy(bytes.name, event->name.data(), event->name.size());
  std::memcpy(handle->reserved, &bytes, sizeof bytes);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  KVTRIAGE_FAKE_CUDA_ENTER(kDevice);
  EventHandleBytes bytes;
  std::memcpy(&bytes, handle.reserved, sizeof bytes);
  bytes.name[sizeof bytes.name - 1] = 0;
  if (std::memcmp(bytes.magic, kMagic, sizeof kMagic) != 0 ||
      std::strchr(bytes.name, '/') != nullptr) {
    return Leave(cudaErrorInvalidResourceHandle);
  }
  if (bytes.exporter == getpid()) return Leave(cudaErrorInvalidResourceHandle);
  auto opened = std::make_unique<CUevent_st>();
  opened->name = bytes.name;
  opened->flags = cudaEventDisableTiming | cudaEventInterprocess;
  opened->opened = true;
  opened->state = MapState(opened->name, 0);
  if (opened->state == nullptr) return Leave(cudaErrorMapBufferObjectFailed);
  *event = opened.release();
  return cudaSuccess;
}

}  // extern "C"
