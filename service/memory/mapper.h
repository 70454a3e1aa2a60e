// The thread that opens and closes host mappings. mmap and munmap of a large cache can take long,
// so no RPC thread and no lane ever does them.
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
  ~Mapper();  // runs what is queued, what is still delayed too, then joins
  Mapper(const Mapper&) = delete;
  Mapper& operator=(const Mapper&) = delete;

  // Runs `task` on the mapper's thread, in order.
  void Post(std::function<void()> task);
  // The same, not before `delay_ms` from now; later if the thread is in the middle of something.
  void PostAfter(uint64_t delay_ms, std::function<void()> task);

  // Closes descriptors there: with the last one of a file a whole cache may have to be freed.
  void Close(std::vector<UniqueFd> fds);

  // How long the running task has been at it, in ms; 0 when idle. For the watchdog.
  uint64_t BusyMs() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_MAPPER_H_
