// Memory for what Observe keeps: one number for all sessions, and each sequence's part of it.
// Thread-safe.
#ifndef KVTRIAGE_SERVICE_ENGINE_SCORE_BUDGET_H_
#define KVTRIAGE_SERVICE_ENGINE_SCORE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace kvtriage {

class ScoreBudget {
 public:
  explicit ScoreBudget(uint64_t limit) : limit_(limit) {}

  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t limit() const { return limit_; }

 private:
  friend class ScoreLease;
  // Whether one part may go from `from` bytes to `to`; a smaller one always may.
  bool Change(uint64_t from, uint64_t to);

  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
};

// The part of one sequence; given back when it is destroyed. One thread resizes it at a time.
class ScoreLease {
 public:
  explicit ScoreLease(std::shared_ptr<ScoreBudget> budget) : budget_(std::move(budget)) {}
  ~ScoreLease() { Resize(0); }
  ScoreLease(const ScoreLease&) = delete;
  ScoreLease& operator=(const ScoreLease&) = delete;

  // False, and nothing changes, when the budget would be outgrown.
  bool Resize(uint64_t bytes);
  uint64_t bytes() const { return bytes_; }
  const ScoreBudget& budget() const { return *budget_; }

 private:
  const std::shared_ptr<ScoreBudget> budget_;
  uint64_t bytes_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_SCORE_BUDGET_H_
