// Where the news goes that a device is lost: it may come from any thread, before the service is
// whole and while it ends.
#ifndef KVTRIAGE_SERVICE_APP_LOSS_REPORT_H_
#define KVTRIAGE_SERVICE_APP_LOSS_REPORT_H_

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/core/mutex.h"

namespace kvtriage {

// Thread-safe.
class LossReport {
 public:
  void Tell() {
    const MutexLock lock(&mutex_);
    told_ = true;
    if (then_ != nullptr) then_();
  }
  // `then` is called for every Tell, also for those before; quick, and under a lock of its own.
  // Null: no more.
  void SetReceiver(std::function<void()> then) {
    const MutexLock lock(&mutex_);
    then_ = std::move(then);
    if (told_ && then_ != nullptr) then_();
  }

 private:
  Mutex mutex_;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> then_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_LOSS_REPORT_H_
