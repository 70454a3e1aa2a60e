#include "service/session/bad_token_guard.h"

namespace kvtriage {

void BadTokenGuard::Count(uid_t uid, Time now) {
  Forget(now);
  Guesses& guesses = guesses_[uid];
  guesses.times.push_back(now);
  if (guesses.times.size() < allowed_) return;
  guesses.blocked_until = now + window_;
  guesses.times.clear();
}

bool BadTokenGuard::Blocks(uid_t uid, Time now) const {
  const auto found = guesses_.find(uid);
  return found != guesses_.end() && now < found->second.blocked_until;
}

void BadTokenGuard::Forget(Time now) {
  for (auto it = guesses_.begin(); it != guesses_.end();) {
    Guesses& guesses = it->second;
    while (!guesses.times.empty() && guesses.times.front() + window_ <= now) {
      guesses.times.pop_front();
    }
    const bool forgotten = guesses.times.empty() && guesses.blocked_until <= now;
    it = forgotten ? guesses_.erase(it) : std::next(it);
  }
}

}  // namespace kvtriage
