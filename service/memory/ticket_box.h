// Descriptors that came over the fd socket and wait for a registration that names them. Not
// thread-safe; descriptors that leave are handed to the caller, who closes them when it holds no
// lock (closing may free a whole cache).
#ifndef KVTRIAGE_SERVICE_MEMORY_TICKET_BOX_H_
#define KVTRIAGE_SERVICE_MEMORY_TICKET_BOX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "service/memory/unique_fd.h"

namespace kvtriage {

class TicketBox {
 public:
  using Time = std::chrono::steady_clock::time_point;

  size_t size() const { return waiting_.size(); }
  // A new random ticket, good until `expiry`.
  uint64_t Add(UniqueFd fd, Time expiry);
  // A ticket works once: it is gone afterwards. Nothing when it is unknown.
  std::optional<UniqueFd> Take(uint64_t ticket);
  // Those whose time is over at `now`.
  std::vector<UniqueFd> TakeExpired(Time now);
  std::vector<UniqueFd> TakeAll();

 private:
  struct Waiting {
    UniqueFd fd;
    Time expiry;
  };
  std::unordered_map<uint64_t, Waiting> waiting_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_TICKET_BOX_H_
