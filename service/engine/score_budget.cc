#include "service/engine/score_budget.h"

namespace kvtriage {

bool ScoreBudget::Change(uint64_t from, uint64_t to) {
  if (to <= from) {
    used_.fetch_sub(from - to, std::memory_order_relaxed);
    return true;
  }
  const uint64_t more = to - from;
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (used > limit_ || more > limit_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + more, std::memory_order_relaxed));
  return true;
}

bool ScoreLease::Resize(uint64_t bytes) {
  if (!budget_->Change(bytes_, bytes)) return false;
  bytes_ = bytes;
  return true;
}

}  // namespace kvtriage
