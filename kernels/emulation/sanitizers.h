// What the emulator tells the sanitizers. Its own sources are never instrumented (they touch the
// memory of many fibers for them), so everything that a kernel's thread does through them is noted
// by hand: which fiber runs, what is read and written, and what orders it.
#ifndef KVTRIAGE_KERNELS_EMULATION_SANITIZERS_H_
#define KVTRIAGE_KERNELS_EMULATION_SANITIZERS_H_

#include <cstddef>

#if defined(KVTRIAGE_EMULATION_TSAN)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
}
#elif defined(KVTRIAGE_EMULATION_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* size);
void __asan_poison_memory_region(const volatile void* address, size_t size);
void __asan_unpoison_memory_region(const volatile void* address, size_t size);
void* __asan_region_is_poisoned(void* address, size_t size);
}
#endif

namespace kvtriage::emulation {

#if defined(KVTRIAGE_EMULATION_TSAN)
inline constexpr bool kReusesStacks = false;  // within a launch: shadow state would mix two threads
inline void Acquire(void* tag) { __tsan_acquire(tag); }
inline void Release(void* tag) { __tsan_release(tag); }
inline bool NoteRead(const void* address, size_t size) {
  __tsan_read_range(const_cast<void*>(address), size);
  return true;
}
inline bool NoteWrite(void* address, size_t size) {
  __tsan_write_range(address, size);
  return true;
}
#elif defined(KVTRIAGE_EMULATION_ASAN)
inline constexpr bool kReusesStacks = true;
inline void Acquire(void*) {}
inline void Release(void*) {}
inline bool NoteRead(const void* address, size_t size) {
  return __asan_region_is_poisoned(const_cast<void*>(address), size) == nullptr;
}
inline bool NoteWrite(void* address, size_t size) {
  return __asan_region_is_poisoned(address, size) == nullptr;
}
#else
inline constexpr bool kReusesStacks = true;
// An edge of the happens-before order: all that was released at a tag precedes what acquires it.
inline void Acquire(void*) {}
inline void Release(void*) {}
// False when the range is out of bounds.
inline bool NoteRead(const void*, size_t) { return true; }
inline bool NoteWrite(void*, size_t) { return true; }
#endif

// While it lives, the emulator's own book-keeping runs: ThreadSanitizer would else see it through
// the C library (memset, free), in the name of whichever fiber does it.
class Unwatched {
 public:
#if defined(KVTRIAGE_EMULATION_TSAN)
  Unwatched() { __tsan_ignore_thread_begin(); }
  ~Unwatched() { __tsan_ignore_thread_end(); }
#else
  Unwatched() {}
#endif
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

// What a sanitizer wants to know of one fiber's switches. To: the scheduler resumes the fiber;
// Back: the fiber suspends or ends.
class SwitchNotes {
 public:
#if defined(KVTRIAGE_EMULATION_TSAN)
  void Create(const void*, size_t) {
    scheduler_ = __tsan_get_current_fiber();
    fiber_ = __tsan_create_fiber(0);
  }
  void Destroy() { __tsan_destroy_fiber(fiber_); }
  // 1: the switch itself orders nothing, so only real synchronisation counts.
  void BeforeTo() { __tsan_switch_to_fiber(fiber_, 1); }
  void AfterTo() {}
  void BeforeBack(bool) { __tsan_switch_to_fiber(scheduler_, 1); }
  void AfterBack() {}

 private:
  void* fiber_ = nullptr;
  void* scheduler_ = nullptr;
#elif defined(KVTRIAGE_EMULATION_ASAN)
  void Create(const void* stack, size_t bytes) {
    stack_ = stack;
    stack_bytes_ = bytes;
  }
  void Destroy() {}
  void BeforeTo() { __sanitizer_start_switch_fiber(&scheduler_saved_, stack_, stack_bytes_); }
  // By the fiber, also when it starts.
  void AfterTo() {
    __sanitizer_finish_switch_fiber(fiber_saved_, &scheduler_stack_, &scheduler_bytes_);
  }
  void BeforeBack(bool ends) {
    __sanitizer_start_switch_fiber(ends ? nullptr : &fiber_saved_, scheduler_stack_,
                                   scheduler_bytes_);
  }
  // By the scheduler.
  void AfterBack() { __sanitizer_finish_switch_fiber(scheduler_saved_, nullptr, nullptr); }

 private:
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
  void* fiber_saved_ = nullptr;
  void* scheduler_saved_ = nullptr;
#else
  void Create(const void*, size_t) {}
  void Destroy() {}
  void BeforeTo() {}
  void AfterTo() {}
  void BeforeBack(bool) {}
  void AfterBack() {}
#endif
};

inline void Poison([[maybe_unused]] const void* address, [[maybe_unused]] size_t size) {
#if defined(KVTRIAGE_EMULATION_ASAN)
  __asan_poison_memory_region(address, size);
#endif
}
inline void Unpoison([[maybe_unused]] const void* address, [[maybe_unused]] size_t size) {
#if defined(KVTRIAGE_EMULATION_ASAN)
  __asan_unpoison_memory_region(address, size);
#endif
}

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_SANITIZERS_H_
