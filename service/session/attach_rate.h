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

  // `per_second` > 0. A full bucket is one second's worth.
  explicit AttachRate(uint32_t per_second) : cost_(kFull / per_second) {}

  // Whether one more may attach at `now`; counts it if so. Times never go back.
  bool Take(Time now) {
    left_ = std::min(kFull, left_ + std::min(kFull, now - last_));
    last_ = now;
    if (left_ < cost_) return false;
    left_ -= cost_;
    return true;
  }

 private:
  using Duration = Time::duration;
  static constexpr Duration kFull = std::chrono::seconds(1);

  const Duration cost_;  // of one attach
  Duration left_ = kFull;
  Time last_{};
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_ATTACH_RATE_H_
