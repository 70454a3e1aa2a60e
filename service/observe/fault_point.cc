#include "service/observe/fault_point.h"

#ifdef KVTRIAGE_FAULT_POINTS

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/mutex.h"

namespace kvtriage {
namespace {

enum class Action : uint32_t { kNone, kKill, kDelay, kUntil, kHang };

struct Fault {
  Action action = Action::kNone;
  uint64_t passing = 1;
  uint64_t delay_ms = 0;
  std::string path;  // of the file that kUntil waits for
};

// One point. `passed` counts lock-free; the fault is read only at a passing, under the lock.
struct Point {
  std::atomic<uint64_t> passed{0};
  Mutex mutex;
  Fault fault ABSL_GUARDED_BY(mutex);
};

std::array<Point, kFaultPointNames.size()>& Points() {
  static auto& points = *new std::array<Point, kFaultPointNames.size()>;
  return points;
}

std::optional<size_t> FindPoint(std::string_view name) {
  for (size_t i = 0; i < kFaultPointNames.size(); ++i) {
    if (kFaultPointNames[i] == name) return i;
  }
  return std::nullopt;
}

absl::Status Bad(std::string_view what, std::string_view entry) {
  return absl::InvalidArgumentError(
      absl::StrCat("fault: ", absl::string_view(what.data(), what.size()), ": ",
                   absl::string_view(entry.data(), entry.size())));
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}

absl::Status ParseEntry(std::string_view entry,
                        std::array<Fault, kFaultPointNames.size()>& faults) {
  std::string_view rest = entry;
  const std::optional<size_t> index = FindPoint(TakeUntil(rest, ':'));
  if (!index) return Bad("unknown point", entry);
  Fault& fault = faults[*index];
  if (fault.action != Action::kNone) return Bad("given twice", entry);
  const bool has_count = rest.find(':') != std::string_view::npos;
  const std::string_view action = TakeUntil(rest, ':');
  constexpr std::string_view kDelay = "delay=", kUntil = "until=";
  if (action == "kill") {
    fault.action = Action::kKill;
  } else if (action == "hang") {
    fault.action = Action::kHang;
  } else if (action.substr(0, kDelay.size()) == kDelay) {
    const std::optional<uint64_t> ms = ParseNumber(action.substr(kDelay.size()));
    if (!ms) return Bad("not a number of ms", entry);
    fault.action = Action::kDelay;
    fault.delay_ms = *ms;
  } else if (action.substr(0, kUntil.size()) == kUntil) {
    fault.path = action.substr(kUntil.size());
    if (fault.path.empty()) return Bad("no path", entry);
    fault.action = Action::kUntil;
  } else {
    return Bad("unknown action", entry);
  }
  if (has_count) {
    const std::optional<uint64_t> passing = ParseNumber(rest);
    if (!passing || *passing == 0) return Bad("not a passing", entry);
    fault.passing = *passing;
  }
  return absl::OkStatus();
}

void Act(const Fault& fault) {
  switch (fault.action) {
    case Action::kNone:
      return;
    case Action::kKill:
      ::kill(::getpid(), SIGKILL);
      return;
    case Action::kDelay:
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.delay_ms));
      return;
    case Action::kUntil:
      while (::access(fault.path.c_str(), F_OK) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return;
    case Action::kHang:
      while (true) ::pause();
  }
}

}  // namespace

void FaultPoint(FaultPointName name) {
  Point& point = Points()[name.index()];
  const uint64_t passing = point.passed.fetch_add(1, std::memory_order_relaxed) + 1;
  Fault fault;
  {
    MutexLock lock(&point.mutex);
    fault = point.fault;
  }
  if (passing == fault.passing) Act(fault);
}

absl::Status SetFaults(std::string_view spec) {
  std::array<Fault, kFaultPointNames.size()> faults;
  while (!spec.empty()) {
    const absl::Status parsed = ParseEntry(TakeUntil(spec, ','), faults);
    if (!parsed.ok()) return parsed;
  }
  for (size_t i = 0; i < faults.size(); ++i) {
    Point& point = Points()[i];
    MutexLock lock(&point.mutex);
    point.fault = faults[i];
    point.passed.store(0, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

uint64_t FaultPointPassings(std::string_view name) {
  const std::optional<size_t> index = FindPoint(name);
  return index ? Points()[*index].passed.load(std::memory_order_relaxed) : 0;
}

}  // namespace kvtriage

#endif  // KVTRIAGE_FAULT_POINTS
