// The thread that opens and closes host mappings. mmap and munmap of a large cache can take long, so no
// RPC thread and no lane ever does them.
#ifndef KVTRIAGE_SERVICE_MEMORY_MAPPER_H_
#define KVTRIAGE_SERVICE_MEMORY_MAPPER_H_

#include <functional>
#include <memory>

namespace kvtriage {

class Mapper {
 public:
  Mapper();
  ~Mapper();  // runs what is queued, then joins

  // Runs `task` on the mapper's thread, in order.
  void Post(std::function<void()> task);

  // How long the running task has been at it, in ms; 0 when idle. For the watchdog.
  uint64_t BusyMs() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_MAPPER_H_
