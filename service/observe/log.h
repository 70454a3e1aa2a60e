// JSON lines on standard error, one object per line, written by a thread of its own: whoever logs
// never waits for the terminal. Lines hold our own words and numbers only, never what a client sent
// (a checked client name apart), never tokens, tickets, keys, addresses or contents of memory.
#ifndef KVTRIAGE_SERVICE_OBSERVE_LOG_H_
#define KVTRIAGE_SERVICE_OBSERVE_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/core/error.h"

namespace kvtriage {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };
std::optional<LogLevel> ParseLogLevel(std::string_view name);  // "debug", "info", "warn", "error"
std::string_view LogLevelName(LogLevel level);

// One line: LogLine(LogLevel::kInfo, "rpc").Add("us", 120). The time is taken here. Keys and values
// are escaped as JSON needs it.
class LogLine {
 public:
  LogLine(LogLevel level, std::string_view event);
  LogLine& Add(std::string_view key, std::string_view value);
  LogLine& Add(std::string_view key, const char* value) {
    return Add(key, std::string_view(value));
  }
  LogLine& Add(std::string_view key, uint64_t number);
  LogLine& AddHex(std::string_view key, uint64_t id);  // 16 digits, for ids
  LogLine& Reason(ErrorReason reason);                 // and LimitAs its name
  // At most 10 lines a second are written of one word; the next one says how many were left out.
  // `word` is of a closed set. For lines that others can cause as often as they like.
  LogLine& LimitAs(std::string_view word);

  LogLevel level() const { return level_; }
  const std::string& limited_as() const { return limited_as_; }  // empty: not limited
  // The object without its closing brace.
  const std::string& text() const { return text_; }

 private:
  LogLevel level_;
  std::string limited_as_;
  std::string text_;
};

// Thread-safe.
class Log {
 public:
  struct Settings {
    LogLevel level = LogLevel::kInfo;
    int fd = 2;                   // stays the caller's
    uint32_t queue_lines = 4096;  // what does not fit is dropped and counted
  };
  explicit Log(const Settings& settings);
  ~Log();  // writes what is queued

  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool Enabled(LogLevel level) const { return level >= level_; }
  void Write(LogLine line);

  // Waits until everything queued before is written; false after `timeout_ms`.
  bool Flush(uint64_t timeout_ms);

 private:
  struct State;
  const LogLevel level_;
  std::unique_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_LOG_H_
