// The script, what it does to calls, and the last error of a thread.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/counts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace kvtriage::fake_cuda {
namespace {

struct Injection {
  std::string call;
  uint64_t number = 0;  // 0: every call
  int error = 0;
  bool sticky = false, hang = false;
  uint64_t wait_ms = 0;
  std::string kind;
};

struct Scripted {
  Settings settings;
  std::vector<Injection> injections;
};

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool ParseInjection(std::string_view word, size_t at, Scripted& scripted) {
  Injection injection{.call = std::string(word.substr(0, at))};
  const std::string_view rest = word.substr(at + 1);
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return false;
  const std::optional<uint64_t> number = Number(rest.substr(0, colon));
  if (!number) return false;
  injection.number = *number;
  const std::string_view effect = rest.substr(colon + 1);
  const std::string_view name = effect.substr(0, effect.find('='));
  const std::string_view value =
      name.size() < effect.size() ? effect.substr(name.size() + 1) : std::string_view();
  if (name == "hang") {
    injection.hang = true;
  } else if (name == "kind") {
    injection.kind = std::string(value);
  } else {
    const std::optional<uint64_t> amount = Number(value);
    if (!amount) return false;
    if (name == "wait") {
      injection.wait_ms = *amount;
    } else if (name == "error" || name == "sticky") {
      injection.error = static_cast<int>(*amount);
      injection.sticky = name == "sticky";
    } else {
      return false;
    }
  }
  scripted.injections.push_back(std::move(injection));
  return true;
}

bool ParseSetting(std::string_view word, Scripted& scripted) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals);
  const std::optional<uint64_t> value = Number(word.substr(equals + 1));
  if (!value) return false;
  Settings& settings = scripted.settings;
  if (name == "devices") {
    settings.devices = static_cast<int>(std::min<uint64_t>(*value, kMaxDevices));
  } else if (name == "memory") {
    settings.memory = *value;
  } else if (name == "seed") {
    settings.seed = *value;
  } else if (name == "dead") {
    settings.dead = static_cast<int>(*value);
  } else if (name == "freed") {
    settings.freed = static_cast<int>(*value);
  } else if (name == "guard") {
    settings.guard = *value != 0;
  } else {
    return false;
  }
  return true;
}

bool Parse(const std::string& text, Scripted& scripted) {
  std::string blanks = text;
  std::replace(blanks.begin(), blanks.end(), ';', ' ');
  std::istringstream words(blanks);
  std::string word;
  while (words >> word) {
    const size_t at = word.find('@');
    const bool parsed =
        at == std::string::npos ? ParseSetting(word, scripted) : ParseInjection(word, at, scripted);
    if (!parsed) return false;
  }
  return true;
}

std::mutex mutex;

Scripted& Current() {
  static Scripted scripted = [] {
    Scripted from_environment;
    const char* text = std::getenv("KVTRIAGE_FAKE_CUDA_SCRIPT");
    if (text != nullptr && !Parse(text, from_environment)) Misuse("script", text);
    return from_environment;
  }();
  return scripted;
}

// Copies, as an effect may take long: the lock is not held while it does.
std::vector<Injection> InjectionsFor(const char* name, uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<Injection> wanted;
  for (const Injection& injection : Current().injections) {
    if (injection.call == name && (injection.number == 0 || injection.number == number)) {
      wanted.push_back(injection);
    }
  }
  return wanted;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string scripted_kind;

std::optional<cudaError_t> MissingNeeds(const char* name, Needs needs) {
  if (needs == Needs::kNothing) return std::nullopt;
  if (Folder().empty()) return cudaErrorInsufficientDriver;
  if (CurrentSettings().devices == 0) return cudaErrorNoDevice;
  if (needs == Needs::kDevice && !HasSetDevice())
    Misuse(name, "this thread has not set its device");
  return std::nullopt;
}

}  // namespace

bool Script(const std::string& text) {
  Scripted scripted;
  if (!Parse(text, scripted)) return false;
  const std::lock_guard<std::mutex> lock(mutex);
  Current() = std::move(scripted);
  ResetCounts();
  ForgetSticky();
  return true;
}

Settings CurrentSettings() {
  const std::lock_guard<std::mutex> lock(mutex);
  return Current().settings;
}

const std::string& Folder() {
  static const std::string folder = [] {
    const char* name = std::getenv("KVTRIAGE_FAKE_CUDA");
    return std::string(name == nullptr ? "" : name);
  }();
  return folder;
}

std::optional<cudaError_t> EnterCall(const char* name, Needs needs) {
  const uint64_t number = CountCall(name);
  scripted_kind.clear();
  std::optional<cudaError_t> error;
  for (const Injection& injection : InjectionsFor(name, number)) {
    if (injection.hang) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (injection.wait_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(injection.wait_ms));
    }
    if (!injection.kind.empty()) scripted_kind = injection.kind;
    if (injection.error == 0) continue;
    error = static_cast<cudaError_t>(injection.error);
    if (injection.sticky) MakeSticky(*error);
  }
  if (const auto missing = MissingNeeds(name, needs); missing.has_value()) return missing;
  if (error.has_value()) return error;
  const cudaError_t sticky = StickyError();
  if (needs == Needs::kDevice && sticky != cudaSuccess) return sticky;
  return std::nullopt;
}

std::string ScriptedKind() { return scripted_kind; }

cudaError_t Leave(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

void Misuse(const char* call, const char* what) {
  std::fprintf(stderr, "fake_cuda: %s: %s\n", call, what);
  std::_Exit(kMisuseExit);
}

}  // namespace kvtriage::fake_cuda

using namespace kvtriage::fake_cuda;

extern "C" {

cudaError_t cudaGetLastError() {
  EnterCall(__func__, Needs::kNothing);
  const cudaError_t sticky = StickyError();
  const cudaError_t error = sticky != cudaSuccess ? sticky : last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  EnterCall(__func__, Needs::kNothing);
  const cudaError_t sticky = StickyError();
  return sticky != cudaSuccess ? sticky : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  EnterCall(__func__, Needs::kNothing);
  // The text is for logs only; the number is what our code goes by.
  static thread_local char name[32];
  std::snprintf(name, sizeof name, "cudaError%d", static_cast<int>(error));
  return name;
}

}  // extern "C"
