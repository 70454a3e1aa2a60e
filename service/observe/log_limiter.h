// Lets ten lines per reason and second through and counts the rest.
#ifndef KVTRIAGE_SERVICE_OBSERVE_LOG_LIMITER_H_
#define KVTRIAGE_SERVICE_OBSERVE_LOG_LIMITER_H_

#include <cstdint>
#include <map>
#include <optional>

#include "kernels/core/error.h"

namespace kvtriage {

inline constexpr uint32_t kLogLinesPerSecond = 10;

// Not thread-safe.
class LogLimiter {
 public:
  // Nothing: leave the line out. Else the number of lines with this reason left out since the last
  // one.
  std::optional<uint64_t> Admit(ErrorReason reason, uint64_t now_ms) {
    Window& window = windows_[reason];
    if (window.lines == 0 || now_ms - window.begin_ms >= 1000) {
      window.begin_ms = now_ms;
      window.lines = 0;
    }
    if (window.lines == kLogLinesPerSecond) {
      ++window.suppressed;
      return std::nullopt;
    }
    ++window.lines;
    const uint64_t suppressed = window.suppressed;
    window.suppressed = 0;
    return suppressed;
  }

 private:
  struct Window {
    uint64_t begin_ms = 0;
    uint32_t lines = 0;
    uint64_t suppressed = 0;
  };
  std::map<ErrorReason, Window> windows_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_LOG_LIMITER_H_
