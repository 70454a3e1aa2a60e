// Everything around a session table, as the service sets it up, with what it reported.
#ifndef KVTRIAGE_TESTS_UNIT_SESSION_SESSION_HOUSE_H_
#define KVTRIAGE_TESTS_UNIT_SESSION_SESSION_HOUSE_H_

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/core/mutex.h"
#include "service/memory/mapper.h"
#include "service/session/doorkeeper.h"
#include "service/session/session_table.h"

namespace kvtriage {

// What happened, in order, as words.
class Events {
 public:
  void Add(std::string word) {
    MutexLock lock(&mutex_);
    words_.push_back(std::move(word));
  }
  std::vector<std::string> all() const {
    MutexLock lock(&mutex_);
    return words_;
  }
  size_t Count(std::string_view word) const {
    MutexLock lock(&mutex_);
    return static_cast<size_t>(std::count(words_.begin(), words_.end(), word));
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> words_ ABSL_GUARDED_BY(mutex_);
};

struct SessionHouse : SessionObserver, MappingObserver {
  explicit SessionHouse(const SessionLimits& limits = {})
      : table(std::in_place, kEpoch, limits, doorkeeper, mapper, this, this) {}
  ~SessionHouse() override { table.reset(); }

  static constexpr uint64_t kEpoch = 0xE90C4;

  void OnAttached(const Session&) override { events.Add("attached"); }
  void OnBound(const Session&, const PeerProcess&) override { events.Add("bound"); }
  void OnEnded(const Session&, EndCause cause) override {
    events.Add("ended " + std::string(EndCauseName(cause)));
  }
  void OnMapped(DeviceIndex, uint64_t bytes) override { mapped += bytes; }
  void OnRetiring() override {}
  void OnUnmapped(DeviceIndex, uint64_t bytes) override {
    mapped -= bytes;
    events.Add("unmapped");
  }

  absl::StatusOr<std::shared_ptr<Session>> Attach() {
    return table->Attach(
        {"test/1", 0, 0},
        [this](const SessionNotice& notice) { events.Add("notice " + std::string(notice.reason)); },
        [this](EndCause cause) { events.Add("over " + std::string(EndCauseName(cause))); });
  }
  static std::string_view TokenOf(const Session& session) {
    return {reinterpret_cast<const char*>(session.token().data()), session.token().size()};
  }
  // Bound to this very process, without a pidfd.
  absl::StatusOr<std::shared_ptr<Session>> AttachBound() {
    absl::StatusOr<std::shared_ptr<Session>> session = Attach();
    if (!session.ok()) return session;
    return table->Bind(TokenOf(**session), {::getuid(), ::getgid(), ::getpid()}, UniqueFd());
  }
  absl::StatusOr<RegisteredIds> Register(Session& session, RegisterSpec spec) {
    std::promise<absl::StatusOr<RegisteredIds>> answer;
    session.memory().Register(std::move(spec), [&](auto ids) { answer.set_value(std::move(ids)); });
    return answer.get_future().get();
  }

  Events events;
  std::atomic<uint64_t> mapped{0};
  Doorkeeper doorkeeper;
  Mapper mapper;
  std::optional<SessionTable> table;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_SESSION_SESSION_HOUSE_H_
