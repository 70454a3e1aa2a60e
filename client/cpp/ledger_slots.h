// Which ledger slots of a session are free. The client picks the slot of every writing call, and
// gives it back only when it knows what became of the call: so nothing unread is overwritten.
#ifndef KVTRIAGE_CLIENT_CPP_LEDGER_SLOTS_H_
#define KVTRIAGE_CLIENT_CPP_LEDGER_SLOTS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "client/cpp/steady_time.h"
#include "kernels/core/mutex.h"

namespace kvtriage::client {

class LedgerSlots {
 public:
  explicit LedgerSlots(uint32_t slots) : busy_(slots, false) {}

  // Holds a slot; gives it back when destroyed unless Keep was called.
  class Lease {
   public:
    Lease(LedgerSlots* owner, uint32_t slot) : owner_(owner), slot_(slot) {}
    Lease(Lease&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), slot_(other.slot_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (owner_ != nullptr) owner_->Release(slot_);
    }
    uint32_t slot() const { return slot_; }
    // The slot is never used again: a job of unknown fate may still write it.
    void Keep() { owner_ = nullptr; }

   private:
    LedgerSlots* owner_;
    uint32_t slot_;
  };

  // Waits for a free slot; nothing after `deadline`.
  std::optional<Lease> Acquire(absl::Time deadline) {
    const auto end = SteadyTime(deadline);
    MutexLock lock(&mutex_);
    while (true) {
      for (uint32_t slot = 0; slot < busy_.size(); ++slot) {
        if (busy_[slot]) continue;
        busy_[slot] = true;
        return Lease(this, slot);
      }
      if (!freed_.WaitUntil(&mutex_, end)) return std::nullopt;
    }
  }

 private:
  void Release(uint32_t slot) {
    MutexLock lock(&mutex_);
    busy_[slot] = false;
    freed_.NotifyOne();
  }

  Mutex mutex_;
  CondVar freed_;
  std::vector<bool> busy_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_LEDGER_SLOTS_H_
