// At most so many attaches a second, for the whole service: a bucket that refills steadily.
#ifndef KVTRIAGE_SERVICE_SESSION_ATTACH_RATE_H_
#define KVTRIAGE_SERVICE_SESSION_ATTACH_RATE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace kvtriage {

// Not thread-safe.
class AttachRate {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit AttachRate(uint32_t per_second) : per_second_(per_second), left_(per_second) {}

  // Whether one more may attach at `now`; counts it if so. Times never go back.
  bool Take(Time now) {
    const std::chrono::duration<double> passed = now - last_;
    left_ = std::min<double>(per_second_, left_ + passed.count() * per_second_);
    last_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  double per_second_, left_;
  Time last_{};
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_ATTACH_RATE_H_
