#include "kernels/emulation/fiber.h"

#include <sys/mman.h>

#include <boost/context/preallocated.hpp>
#include <boost/context/stack_context.hpp>
#include <cstdlib>
#include <utility>

namespace kvtriage::emulation {
namespace {

struct KeepStack {  // the pool owns it
  void deallocate(boost::context::stack_context&) noexcept {}
};

}  // namespace

StackPool::~StackPool() {
  for (std::byte* stack : stacks_) munmap(stack, kStackBytes);
}

std::byte* StackPool::Get(size_t i) {
  while (stacks_.size() <= i) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) std::abort();
    stacks_.push_back(static_cast<std::byte*>(stack));
  }
  return stacks_[i];
}

void Fiber::Start(std::byte* stack, void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  boost::context::stack_context context;
  context.sp = stack + StackPool::kStackBytes;
  context.size = StackPool::kStackBytes - StackPool::kGuardBytes;
  notes_.Create(stack + StackPool::kGuardBytes, context.size);
  self_ = boost::context::fiber(std::allocator_arg,
                                boost::context::preallocated(context.sp, context.size, context),
                                KeepStack{}, [this](boost::context::fiber&& scheduler) {
                                  scheduler_ = std::move(scheduler);
                                  notes_.AfterTo();
                                  entry_(argument_);
                                  notes_.BeforeBack(true);
                                  return std::move(scheduler_);
                                });
}

void Fiber::Resume() {
  notes_.BeforeTo();
  self_ = std::move(self_).resume();
  notes_.AfterBack();
}

void Fiber::Suspend() {
  notes_.BeforeBack(false);
  scheduler_ = std::move(scheduler_).resume();
  notes_.AfterTo();
}

void Fiber::Release() { notes_.Destroy(); }

}  // namespace kvtriage::emulation
