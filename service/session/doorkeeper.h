// One epoll thread: accepts on the Unix sockets, reads fd-socket packets, watches pidfds, runs
// timers. Callbacks run on its thread and must not block.
#ifndef KVTRIAGE_SERVICE_SESSION_DOORKEEPER_H_
#define KVTRIAGE_SERVICE_SESSION_DOORKEEPER_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace kvtriage {

class Doorkeeper {
 public:
  Doorkeeper();
  ~Doorkeeper();  // stops and joins; pending timers, tasks and watches are dropped
  Doorkeeper(const Doorkeeper&) = delete;
  Doorkeeper& operator=(const Doorkeeper&) = delete;

  // Calls `ready(events)` whenever `fd` has EPOLL `events` (level-triggered). The fd stays the
  // caller's and must be unwatched before it is closed. False when the kernel refuses to watch it.
  // Any thread.
  bool Watch(int fd, uint32_t events, std::function<void(uint32_t)> ready);
  // Afterwards the callback neither runs nor will; only where a callback unwatches its own fd does
  // it run on to its end. Waits for a running callback, so hold no lock that it takes. Any thread.
  void Unwatch(int fd);

  // Runs `task` once after `delay_ms`. The id cancels it; cancelling what has run is harmless. Any
  // thread.
  uint64_t After(uint64_t delay_ms, std::function<void()> task);
  void Cancel(uint64_t timer);

  // Runs `task` on this thread soon.
  void Post(std::function<void()> task);
  // The same, and waits for its end. On the doorkeeper's own thread it runs at once.
  void RunAndWait(std::function<void()> task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_DOORKEEPER_H_
