// The threads of one CPU backend. They sleep between calls; the calling thread is one of them.
#ifndef KVTRIAGE_KERNELS_CPU_THREAD_TEAM_H_
#define KVTRIAGE_KERNELS_CPU_THREAD_TEAM_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvtriage {

// Not thread-safe: one Run at a time, and none from inside `work`.
class ThreadTeam {
 public:
  // `threads` >= 1 counts the thread that calls Run; less counts as 1.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(item, worker) once for every item below `items` and returns when all have ended.
  // Items are taken in ascending order; `worker` is in [0, threads()), and two items that run at
  // the same time have different ones (so it may index scratch memory). What the items wrote is
  // visible to the caller afterwards. Which worker gets an item is not determined: results must not
  // depend on it.
  void Run(size_t items, const std::function<void(size_t item, int worker)>& work);

 private:
  void Serve(int worker);
  void TakeItems(const std::function<void(size_t, int)>& work, size_t items, int worker);

  // A std::mutex: ThreadSanitizer sees into it whatever the Abseil build is.
  std::mutex mutex_;
  std::condition_variable wake_, left_;
  // Under mutex_. A worker that wakes after the last item was taken finds no work and is not waited
  // for, so a busy core does not hold up a call.
  const std::function<void(size_t, int)>* work_ = nullptr;
  size_t items_ = 0;
  uint64_t round_ = 0;
  int inside_ = 0;  // workers that have joined the round and not left it
  bool stop_ = false;

  std::atomic<size_t> next_{0};
  std::vector<std::thread> workers_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_THREAD_TEAM_H_
