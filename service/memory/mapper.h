// The thread that opens and closes host mappings, so that no RPC thread and no lane ever does.
// Whoever gives up the last reference to a file pays for freeing its pages, and when a worker has
// died that is us: some seconds for every ten gigabytes. Such work runs aside, so that other
// sessions' mappings do not wait for it and the watchdog does not take it for a hang.
#ifndef KVTRIAGE_SERVICE_MEMORY_MAPPER_H_
#define KVTRIAGE_SERVICE_MEMORY_MAPPER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "service/memory/unique_fd.h"

namespace kvtriage {

class Mapper {
 public:
  Mapper();
  ~Mapper();  // runs what is queued, delayed or aside to its end, then joins
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  // Runs `task` on the mapper's thread, in order.
  void Post(std::function<void()> task);
  // The same, not before `delay_ms` from now; later if the thread is in the middle of something.
  void PostAfter(uint64_t delay_ms, std::function<void()> task);

  // Runs `task` on a thread of its own, or behind others when there are many already.
  void PostAside(std::function<void()> task);

  // Closes descriptors, aside when they may hold much memory.
  void Close(std::vector<UniqueFd> fds);
  // What may be freed on the mapper's own thread.
  static constexpr uint64_t kQuickBytes = uint64_t{256} << 20;

  // How long the running task has been at it, in ms; 0 when idle. Work aside does not count. For
  // the watchdog.
  uint64_t BusyMs() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_MAPPER_H_
