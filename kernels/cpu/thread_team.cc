#include "kernels/cpu/thread_team.h"

#include <algorithm>

namespace kvtriage {

ThreadTeam::ThreadTeam(int threads) {
  const int others = std::max(threads, 1) - 1;
  workers_.reserve(static_cast<size_t>(others));
  for (int i = 0; i < others; ++i) workers_.emplace_back([this, i] { Serve(i + 1); });
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::Run(size_t items, const std::function<void(size_t, int)>& work) {
  const size_t wanted = items > 1 ? std::min(items - 1, workers_.size()) : 0;
  if (wanted == 0) {
    for (size_t item = 0; item < items; ++item) work(item, 0);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = &work;
    items_ = items;
    ++round_;
    next_.store(0, std::memory_order_relaxed);
  }
  for (size_t i = 0; i < wanted; ++i) wake_.notify_one();
  TakeItems(work, items, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  left_.wait(lock, [this] { return inside_ == 0; });
  work_ = nullptr;
}

void ThreadTeam::Serve(int worker) {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || (work_ != nullptr && round_ != seen); });
    if (stop_) return;
    seen = round_;
    const std::function<void(size_t, int)>& work = *work_;
    const size_t items = items_;
    ++inside_;
    lock.unlock();
    TakeItems(work, items, worker);
    lock.lock();
    if (--inside_ == 0) left_.notify_one();
  }
}

void ThreadTeam::TakeItems(const std::function<void(size_t, int)>& work, size_t items, int worker) {
  // The mutex orders the memory; the counter only has to be taken once per item.
  for (size_t item = next_.fetch_add(1, std::memory_order_relaxed); item < items;
       item = next_.fetch_add(1, std::memory_order_relaxed)) {
    work(item, worker);
  }
}

}  // namespace kvtriage
