#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_GATE_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_GATE_H_

#include <atomic>
#include <functional>
#include <future>

#include "tests/support/wait_until.h"

namespace kvtriage {

// Holds the lane inside a call of the backend until it is opened. Destroy it after the world.
class Gate {
 public:
  std::function<void()> hook() {
    return [this] {
      ++arrived_;
      opened_.wait();
    };
  }
  bool Reached(int times = 1) {
    return WaitUntil([&] { return arrived_ >= times; });
  }
  void Open() {
    if (!open_) open_ = true, open_promise_.set_value();
  }
  ~Gate() { Open(); }

 private:
  std::atomic<int> arrived_{0};
  bool open_ = false;
  std::promise<void> open_promise_;
  std::shared_future<void> opened_ = open_promise_.get_future().share();
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_GATE_H_
