#include "service/app/watchdog.h"

#include <utility>

namespace kvtriage {
namespace {
constexpr uint64_t kLookEveryMs = 250;
}  // namespace

Watchdog::Watchdog(Doorkeeper& doorkeeper, std::vector<Watched> watched,
                   std::function<void(const Watched&)> on_stuck)
    : doorkeeper_(doorkeeper), watched_(std::move(watched)), on_stuck_(std::move(on_stuck)) {
  doorkeeper_.RunAndWait([this] { Look(); });
}

Watchdog::~Watchdog() {
  doorkeeper_.RunAndWait([this] { doorkeeper_.Cancel(timer_); });
}

void Watchdog::Look() {
  for (const Watched& watched : watched_) {
    if (watched.busy_ms() > watched.limit_ms) return on_stuck_(watched);
  }
  timer_ = doorkeeper_.After(kLookEveryMs, [this] { Look(); });
}

}  // namespace kvtriage
