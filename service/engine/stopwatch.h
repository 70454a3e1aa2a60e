// Wall time of one piece of work.
#ifndef KVTRIAGE_SERVICE_ENGINE_STOPWATCH_H_
#define KVTRIAGE_SERVICE_ENGINE_STOPWATCH_H_

#include <chrono>
#include <cstdint>

namespace kvtriage {

class Stopwatch {
 public:
  Stopwatch() : start_(std::chrono::steady_clock::now()) {}
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  uint32_t micros() const { return static_cast<uint32_t>(seconds() * 1e6); }

 private:
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_STOPWATCH_H_
