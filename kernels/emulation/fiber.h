// A fiber that a scheduler resumes and that suspends itself, with the sanitizers told who runs.
#ifndef KVTRIAGE_KERNELS_EMULATION_FIBER_H_
#define KVTRIAGE_KERNELS_EMULATION_FIBER_H_

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <vector>

#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {

// Stacks with a guard page below, kept for reuse. For one host thread.
class StackPool {
 public:
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  static constexpr size_t kStackBytes = 128 * 1024;  // guard page included
  static constexpr size_t kGuardBytes = 4096;

  // Lowest address of stack `i`, guard page first.
  std::byte* Get(size_t i);

 private:
  std::vector<std::byte*> stacks_;
};

class Fiber {
 public:
  // `entry(argument)` runs on `stack` at the first Resume; the fiber ends when it returns.
  void Start(std::byte* stack, void (*entry)(void*), void* argument);
  // By the scheduler: until the fiber suspends or ends.
  void Resume();
  // By the fiber: back to the scheduler, until the next Resume.
  void Suspend();
  // By the scheduler, after the fiber's end.
  void Release();

 private:
  boost::context::fiber self_, scheduler_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  SwitchNotes notes_;
};

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_FIBER_H_
