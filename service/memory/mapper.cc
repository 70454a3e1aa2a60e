#include "service/memory/mapper.h"

#include <sys/stat.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "kernels/core/mutex.h"

namespace kvtriage {

using Clock = std::chrono::steady_clock;
using Task = std::function<void()>;

namespace {

constexpr uint32_t kMaxAsideThreads = 16;

uint64_t BytesOf(const std::vector<UniqueFd>& fds) {
  uint64_t bytes = 0;
  for (const UniqueFd& fd : fds) {
    struct stat file;
    if (::fstat(fd.get(), &file) == 0) bytes += static_cast<uint64_t>(file.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace

struct Mapper::State {
  Mutex mutex;
  CondVar changed;
  std::deque<Task> queue ABSL_GUARDED_BY(mutex);
  std::multimap<Clock::time_point, Task> later ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::optional<Clock::time_point> busy_since ABSL_GUARDED_BY(mutex);
  std::deque<Task> aside ABSL_GUARDED_BY(mutex);
  uint32_t aside_threads ABSL_GUARDED_BY(mutex) = 0;
  std::thread thread;

  // The next task that may run; waits for one. Nothing when stopping and all is done.
  std::optional<Task> Next() {
    MutexLock lock(&mutex);
    busy_since.reset();
    while (true) {
      const bool due = !later.empty() && later.begin()->first <= Clock::now();
      if (due || (stopping && queue.empty() && !later.empty())) return TakeLater();
      if (!queue.empty()) return TakeQueued();
      if (stopping && aside_threads == 0) return std::nullopt;
      if (later.empty()) {
        changed.Wait(&mutex);
      } else {
        changed.WaitUntil(&mutex, later.begin()->first);
      }
    }
  }

  Task TakeQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Task task = std::move(queue.front());
    queue.pop_front();
    busy_since = Clock::now();
    return task;
  }

  Task TakeLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Task task = std::move(later.begin()->second);
    later.erase(later.begin());
    busy_since = Clock::now();
    return task;
  }

  void Run() {
    while (std::optional<Task> task = Next()) (*task)();
  }

  // The next task for a thread aside; the thread ends when there is none.
  std::optional<Task> NextAside() {
    MutexLock lock(&mutex);
    if (aside.empty()) {
      --aside_threads;
      changed.NotifyAll();
      return std::nullopt;
    }
    Task task = std::move(aside.front());
    aside.pop_front();
    return task;
  }

  void RunAside() {
    while (std::optional<Task> task = NextAside()) (*task)();
  }
};

Mapper::Mapper() : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

Mapper::~Mapper() {
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  state_->changed.NotifyAll();
  state_->thread.join();
}

void Mapper::Post(Task task) {
  {
    MutexLock lock(&state_->mutex);
    state_->queue.push_back(std::move(task));
  }
  state_->changed.NotifyAll();
}

void Mapper::PostAfter(uint64_t delay_ms, Task task) {
  {
    MutexLock lock(&state_->mutex);
    state_->later.emplace(Clock::now() + std::chrono::milliseconds(delay_ms), std::move(task));
  }
  state_->changed.NotifyAll();
}

void Mapper::PostAside(Task task) {
  {
    MutexLock lock(&state_->mutex);
    state_->aside.push_back(std::move(task));
    if (state_->aside_threads == kMaxAsideThreads) return;
    ++state_->aside_threads;
  }
  // The destructor waits for the count, not for the threads: they hold the state themselves.
  std::thread([state = state_] { state->RunAside(); }).detach();
}

void Mapper::Close(std::vector<UniqueFd> fds) {
  if (fds.empty()) return;
  const bool quick = BytesOf(fds) <= kQuickBytes;
  Task close = [fds = std::make_shared<std::vector<UniqueFd>>(std::move(fds))] { fds->clear(); };
  return quick ? Post(std::move(close)) : PostAside(std::move(close));
}

uint64_t Mapper::BusyMs() const {
  MutexLock lock(&state_->mutex);
  if (!state_->busy_since) return 0;
  const auto busy = Clock::now() - *state_->busy_since;
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(busy).count());
}

}  // namespace kvtriage
