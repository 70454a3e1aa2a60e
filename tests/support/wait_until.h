// Waits for a condition instead of for a time.
#ifndef KVTRIAGE_TESTS_SUPPORT_WAIT_UNTIL_H_
#define KVTRIAGE_TESTS_SUPPORT_WAIT_UNTIL_H_

#include <chrono>
#include <functional>
#include <thread>

namespace kvtriage {

// Whether `condition` came true within `limit_ms`.
inline bool WaitUntil(const std::function<bool()>& condition, int64_t limit_ms = 10'000) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_WAIT_UNTIL_H_
