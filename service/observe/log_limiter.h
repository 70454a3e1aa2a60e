// Lets ten lines per word (a reason, an event) and second through and counts the rest.
#ifndef KVTRIAGE_SERVICE_OBSERVE_LOG_LIMITER_H_
#define KVTRIAGE_SERVICE_OBSERVE_LOG_LIMITER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace kvtriage {

inline constexpr uint32_t kLogLinesPerSecond = 10;

// Not thread-safe.
class LogLimiter {
 public:
  // Nothing: leave the line out. Else the number of lines with this word left out since the last
  // one.
  std::optional<uint64_t> Admit(const std::string& word, uint64_t now_ms) {
    Window& window = windows_[word];
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
  std::map<std::string, Window> windows_;  // words are from closed sets
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_LOG_LIMITER_H_
