// Whoever guesses tokens is not listened to for a while.
#ifndef KVTRIAGE_SERVICE_SESSION_BAD_TOKEN_GUARD_H_
#define KVTRIAGE_SERVICE_SESSION_BAD_TOKEN_GUARD_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <unordered_map>

namespace kvtriage {

// Not thread-safe. Remembers only uids that were wrong within the window or are blocked.
class BadTokenGuard {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // After `allowed` wrong tokens of one uid within `window` it is blocked for another `window`.
  BadTokenGuard(uint32_t allowed, std::chrono::milliseconds window)
      : allowed_(allowed), window_(window) {}

  void Count(uid_t uid, Time now);
  bool Blocks(uid_t uid, Time now) const;

 private:
  struct Guesses {
    std::deque<Time> times;  // of the window
    Time blocked_until{};
  };
  void Forget(Time now);

  const uint32_t allowed_;
  const std::chrono::milliseconds window_;
  std::unordered_map<uid_t, Guesses> guesses_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_SESSION_BAD_TOKEN_GUARD_H_
