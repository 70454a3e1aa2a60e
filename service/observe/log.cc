#include "service/observe/log.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/core/mutex.h"
#include "service/observe/log_limiter.h"

namespace kvtriage {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warn", "error"};

void AppendJson(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", byte);  // Latin-1 at worst: our own words are ASCII
    } else {
      out += c;
    }
  }
  out += '"';
}

uint64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads us: there is nowhere to say so
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

std::string_view LogLevelName(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

LogLine::LogLine(LogLevel level, std::string_view event) : level_(level) {
  text_ = absl::StrCat("{\"ts\":\"",
                       absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()),
                       "\"");
  Add("level", LogLevelName(level));
  Add("event", event);
}

LogLine& LogLine::Add(std::string_view key, std::string_view value) {
  text_ += ',';
  AppendJson(text_, key);
  text_ += ':';
  AppendJson(text_, value);
  return *this;
}

LogLine& LogLine::Add(std::string_view key, uint64_t number) {
  text_ += ',';
  AppendJson(text_, key);
  absl::StrAppend(&text_, ":", number);
  return *this;
}

LogLine& LogLine::AddHex(std::string_view key, uint64_t id) {
  return Add(key, absl::StrFormat("%016x", id));
}

LogLine& LogLine::Reason(ErrorReason reason) {
  return LimitAs(ReasonName(reason)).Add("reason", ReasonName(reason));
}

LogLine& LogLine::LimitAs(std::string_view word) {
  limited_as_ = std::string(word);
  return *this;
}

struct Log::State {
  explicit State(const Settings& settings) : fd(settings.fd), capacity(settings.queue_lines) {}

  // Moves out what is queued; false when the log is to end and nothing is left.
  bool Take(std::deque<std::string>& lines) {
    MutexLock lock(&mutex);
    while (queue.empty() && !stopping) changed.Wait(&mutex);
    lines.swap(queue);
    return !lines.empty();
  }

  void Run() {
    for (std::deque<std::string> lines; Take(lines); lines.clear()) {
      for (const std::string& line : lines) WriteAll(fd, line);
      MutexLock lock(&mutex);
      written += lines.size();
      changed.NotifyAll();
    }
  }

  const int fd;
  const size_t capacity;
  Mutex mutex;
  CondVar changed;
  std::deque<std::string> queue ABSL_GUARDED_BY(mutex);
  LogLimiter limiter ABSL_GUARDED_BY(mutex);
  uint64_t queued ABSL_GUARDED_BY(mutex) = 0;
  uint64_t written ABSL_GUARDED_BY(mutex) = 0;
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;  // since the last line that said so
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::thread thread;  // last: it uses the others
};

Log::Log(const Settings& settings)
    : level_(settings.level), state_(std::make_unique<State>(settings)) {
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
}

Log::~Log() {
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  state_->thread.join();
}

void Log::Write(LogLine line) {
  if (!Enabled(line.level())) return;
  const uint64_t now_ms = NowMs();
  MutexLock lock(&state_->mutex);
  if (!line.limited_as().empty()) {
    const std::optional<uint64_t> suppressed = state_->limiter.Admit(line.limited_as(), now_ms);
    if (!suppressed.has_value()) return;
    if (*suppressed > 0) line.Add("suppressed", *suppressed);
  }
  if (state_->queue.size() >= state_->capacity) {
    ++state_->dropped;
    return;
  }
  if (state_->dropped > 0) line.Add("dropped", std::exchange(state_->dropped, 0));
  state_->queue.push_back(line.text() + "}\n");
  ++state_->queued;
  state_->changed.NotifyAll();
}

bool Log::Flush(uint64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  MutexLock lock(&state_->mutex);
  const uint64_t goal = state_->queued;
  while (state_->written < goal) {
    if (!state_->changed.WaitUntil(&state_->mutex, deadline)) return state_->written >= goal;
  }
  return true;
}

}  // namespace kvtriage
