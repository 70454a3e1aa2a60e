// Ends a process that is stuck: an unmapping that lasts over 5 s, or a job that lasts too long.
#ifndef KVTRIAGE_SERVICE_APP_WATCHDOG_H_
#define KVTRIAGE_SERVICE_APP_WATCHDOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "service/session/doorkeeper.h"

namespace kvtriage {

class Watchdog {
 public:
  struct Watched {
    std::string_view name;  // for the log: "mapper", "lane"
    std::function<uint64_t()> busy_ms;
    uint64_t limit_ms = 0;
    std::string device = "cpu";  // for the log
  };

  // Looks four times a second. `on_stuck` runs at most once, on the doorkeeper's thread.
  Watchdog(Doorkeeper& doorkeeper, std::vector<Watched> watched,
           std::function<void(const Watched&)> on_stuck);
  ~Watchdog();  // afterwards nothing is looked at
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Look();

  Doorkeeper& doorkeeper_;
  const std::vector<Watched> watched_;
  const std::function<void(const Watched&)> on_stuck_;
  uint64_t timer_ = 0;  // doorkeeper's thread
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_WATCHDOG_H_
