#include "service/session/doorkeeper.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/core/mutex.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {
namespace {

using Clock = std::chrono::steady_clock;
using Task = std::function<void()>;
using Ready = std::function<void(uint32_t)>;

constexpr uint64_t kWakeId = 0;  // epoll data of the eventfd; watches count from 1
constexpr int kEventsPerWait = 64;

}  // namespace

struct Doorkeeper::State {
  // An epoll event carries the watch's number, not the fd: a number is never used twice, so an
  // event that was fetched before an Unwatch cannot reach whoever watches the same fd next.
  struct WatchEntry {
    uint64_t id = 0;
    std::shared_ptr<Ready> ready;
  };

  UniqueFd epoll, wake;
  std::thread thread;

  Mutex mutex;
  CondVar callback_ended;
  std::unordered_map<int, WatchEntry> watches ABSL_GUARDED_BY(mutex);  // by fd
  std::unordered_map<uint64_t, int> fds ABSL_GUARDED_BY(mutex);        // by watch
  std::map<std::pair<Clock::time_point, uint64_t>, Task> timers ABSL_GUARDED_BY(mutex);
  std::unordered_map<uint64_t, Clock::time_point> due_times ABSL_GUARDED_BY(mutex);
  std::vector<Task> posted ABSL_GUARDED_BY(mutex);
  uint64_t next_id ABSL_GUARDED_BY(mutex) = kWakeId + 1;
  uint64_t running_watch ABSL_GUARDED_BY(mutex) = kWakeId;  // whose callback runs now
  bool stopping ABSL_GUARDED_BY(mutex) = false;

  void Wake() const {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the thread wakes anyway.
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof(one));
  }

  int WaitMs() {
    MutexLock lock(&mutex);
    if (!posted.empty() || stopping) return 0;
    if (timers.empty()) return -1;
    const auto left = timers.begin()->first.first - Clock::now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return ms <= 0 ? 0 : static_cast<int>(std::min<int64_t>(ms, 60'000));
  }

  void Run() {
    std::array<epoll_event, kEventsPerWait> events;
    while (true) {
      const int count = ::epoll_wait(epoll.get(), events.data(), kEventsPerWait, WaitMs());
      for (int i = 0; i < count; ++i) Dispatch(events[i].data.u64, events[i].events);
      RunTimers();
      RunPosted();
      MutexLock lock(&mutex);
      if (stopping) return;
    }
  }

  void Dispatch(uint64_t id, uint32_t events) {
    if (id == kWakeId) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake.get(), &count, sizeof(count));
      return;
    }
    std::shared_ptr<Ready> ready;
    {
      MutexLock lock(&mutex);
      const auto found = fds.find(id);
      if (found == fds.end()) return;
      ready = watches[found->second].ready;
      running_watch = id;
    }
    (*ready)(events);
    {
      MutexLock lock(&mutex);
      running_watch = kWakeId;
    }
    callback_ended.NotifyAll();
  }

  void RunTimers() {
    const Clock::time_point now = Clock::now();
    while (true) {
      Task task;
      {
        MutexLock lock(&mutex);
        if (timers.empty() || timers.begin()->first.first > now) return;
        task = std::move(timers.begin()->second);
        due_times.erase(timers.begin()->first.second);
        timers.erase(timers.begin());
      }
      task();
    }
  }

  void RunPosted() {
    std::vector<Task> tasks;
    {
      MutexLock lock(&mutex);
      tasks.swap(posted);
    }
    for (Task& task : tasks) {
      task();
      task = nullptr;  // what it held goes now, not after the last of them
    }
  }
};

Doorkeeper::Doorkeeper() : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  state.wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  // Two descriptors at the start of the process: without them there is nothing to run.
  if (::epoll_ctl(state.epoll.get(), EPOLL_CTL_ADD, state.wake.get(), &event) != 0) std::abort();
  state.thread = std::thread([&state] { state.Run(); });
}

Doorkeeper::~Doorkeeper() {
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  state_->Wake();
  state_->thread.join();
}

bool Doorkeeper::Watch(int fd, uint32_t events, Ready ready) {
  MutexLock lock(&state_->mutex);
  const uint64_t id = state_->next_id++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) return false;
  state_->watches[fd] = {id, std::make_shared<Ready>(std::move(ready))};
  state_->fds[id] = fd;
  return true;
}

void Doorkeeper::Unwatch(int fd) {
  State::WatchEntry gone;  // its callback may own things: it goes after the lock
  MutexLock lock(&state_->mutex);
  const auto found = state_->watches.find(fd);
  if (found == state_->watches.end()) return;
  gone = std::move(found->second);
  state_->watches.erase(found);
  state_->fds.erase(gone.id);
  ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (std::this_thread::get_id() == state_->thread.get_id()) return;
  while (state_->running_watch == gone.id) state_->callback_ended.Wait(&state_->mutex);
}

uint64_t Doorkeeper::After(uint64_t delay_ms, Task task) {
  uint64_t id = 0;
  {
    MutexLock lock(&state_->mutex);
    id = state_->next_id++;
    const Clock::time_point due = Clock::now() + std::chrono::milliseconds(delay_ms);
    state_->timers.emplace(std::pair(due, id), std::move(task));
    state_->due_times.emplace(id, due);
  }
  state_->Wake();
  return id;
}

void Doorkeeper::Cancel(uint64_t timer) {
  Task gone;
  MutexLock lock(&state_->mutex);
  const auto found = state_->due_times.find(timer);
  if (found == state_->due_times.end()) return;
  const auto entry = state_->timers.find(std::pair(found->second, timer));
  gone = std::move(entry->second);
  state_->timers.erase(entry);
  state_->due_times.erase(found);
}

void Doorkeeper::Post(Task task) {
  {
    MutexLock lock(&state_->mutex);
    state_->posted.push_back(std::move(task));
  }
  state_->Wake();
}

void Doorkeeper::RunAndWait(Task task) {
  if (std::this_thread::get_id() == state_->thread.get_id()) return task();
  std::promise<void> ended;
  Post([&] {
    task();
    ended.set_value();
  });
  ended.get_future().wait();
}

}  // namespace kvtriage
