#include "service/memory/ticket_box.h"

#include <utility>

#include "service/memory/random_bytes.h"

namespace kvtriage {

uint64_t TicketBox::Add(UniqueFd fd, Time expiry) {
  uint64_t ticket = RandomNumber();
  while (waiting_.contains(ticket)) ticket = RandomNumber();
  waiting_.emplace(ticket, Waiting{std::move(fd), expiry});
  return ticket;
}

std::optional<UniqueFd> TicketBox::Take(uint64_t ticket) {
  auto node = waiting_.extract(ticket);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped().fd);
}

std::vector<UniqueFd> TicketBox::TakeExpired(Time now) {
  std::vector<UniqueFd> out;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.expiry > now) {
      ++it;
    } else {
      out.push_back(std::move(it->second.fd));
      it = waiting_.erase(it);
    }
  }
  return out;
}

std::vector<UniqueFd> TicketBox::TakeAll() { return TakeExpired(Time::max()); }

}  // namespace kvtriage
