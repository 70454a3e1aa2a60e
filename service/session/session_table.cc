#include "service/session/session_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/core/error.h"
#include "service/memory/random_bytes.h"
#include "service/session/session_table_state.h"

namespace kvtriage {
namespace {

constexpr size_t kIdBytes = 8;
constexpr uint32_t kRetryMs = 1000;
constexpr uint64_t kDestroyWaitMs = 5000;

SessionToken MintToken() {
  SessionToken token;
  uint64_t id = RandomNumber();
  for (size_t i = 0; i < kIdBytes; ++i, id >>= 8) token[i] = static_cast<uint8_t>(id);
  FillRandom(std::span(token).subspan(kIdBytes));
  return token;
}

template <typename Bytes>
uint64_t IdOf(const Bytes& token) {
  uint64_t id = 0;
  for (size_t i = kIdBytes; i-- > 0;) id = id << 8 | static_cast<uint8_t>(token[i]);
  return id;
}

// Looks at every byte whatever it finds, so that the time says nothing about the secret.
bool SameSecret(const SessionToken& token, std::string_view guess) {
  volatile uint8_t differences = 0;
  for (size_t i = kIdBytes; i < token.size(); ++i) {
    differences = differences | (token[i] ^ static_cast<uint8_t>(guess[i]));
  }
  return differences == 0;
}

}  // namespace

absl::Status SessionUnknown() { return Error(ErrorReason::kSessionUnknown, "", "no such session"); }

absl::Status TooManySessions(std::string_view text, uint64_t limit) {
  return Error(ErrorReason::kSessionLimit, "", text).Limit(limit).RetryAfterMs(kRetryMs);
}

SessionTable::SessionTable(uint64_t epoch, const SessionLimits& limits, Doorkeeper& doorkeeper,
                           Mapper& mapper, SessionObserver* sessions, MappingObserver* mappings,
                           const DeviceList* devices)
    : state_(std::make_shared<State>(epoch, limits, doorkeeper, mapper, sessions, mappings,
                                     devices)) {}

SessionTable::~SessionTable() {
  StopAttaching();
  EndAll(EndCause::kDrain);
  WaitAllClosed(kDestroyWaitMs);
}

void SessionTable::SetEngineEnd(EngineEnd end) {
  MutexLock lock(&state_->mutex);
  state_->engine_end = std::move(end);
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Attach(
    ClientHello hello, std::function<void(const SessionNotice&)> notify,
    std::function<void(EndCause)> on_ended) {
  auto session = std::make_shared<Session>();
  session->token_ = MintToken();
  session->id_ = IdOf(session->token_);
  session->hello_ = std::move(hello);
  session->memory_ = std::make_unique<SessionMemory>(state_->mapper, state_->limits.memory,
                                                     state_->mappings, state_->devices);
  session->notify_ = std::move(notify);
  session->on_ended_ = std::move(on_ended);
  {
    MutexLock lock(&state_->mutex);
    if (state_->draining) return Error(ErrorReason::kDraining, "", "the service is draining");
    if (!state_->attach_rate.Take(std::chrono::steady_clock::now())) {
      return TooManySessions("too many attaches a second", state_->limits.attach_per_second);
    }
    if (state_->attached.size() >= state_->limits.max_attached) {
      return TooManySessions("too many sessions are attached", state_->limits.max_attached);
    }
    if (!state_->attached.emplace(session->id_, session).second) {
      return TooManySessions("session id taken", state_->limits.max_attached);
    }
    ++state_->unclosed;
  }
  if (state_->sessions != nullptr) state_->sessions->OnAttached(*session);
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Find(std::string_view token) {
  if (token.size() != SessionToken().size()) return SessionUnknown();
  MutexLock lock(&state_->mutex);
  const auto found = state_->attached.find(IdOf(token));
  if (found == state_->attached.end() || !SameSecret(found->second->token_, token)) {
    return SessionUnknown();
  }
  return found->second;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::FindBound(std::string_view token) {
  absl::StatusOr<std::shared_ptr<Session>> session = Find(token);
  if (session.ok() && !(*session)->bound()) {
    return Error(ErrorReason::kSessionNotBound, "",
                 "the session has not said HELLO on the fd socket");
  }
  return session;
}

void SessionTable::End(const std::shared_ptr<Session>& session, EndCause cause) {
  state_->End(session, cause);
}

void SessionTable::NotifyAll(const SessionNotice& notice) {
  std::vector<std::function<void(const SessionNotice&)>> notify;
  {
    MutexLock lock(&state_->mutex);
    for (const auto& [id, session] : state_->attached) notify.push_back(session->notify_);
  }
  for (const auto& call : notify) {
    if (call != nullptr) call(notice);
  }
}

void SessionTable::StopAttaching() {
  MutexLock lock(&state_->mutex);
  state_->draining = true;
}

void SessionTable::EndAll(EndCause cause) {
  std::vector<std::shared_ptr<Session>> all;
  {
    MutexLock lock(&state_->mutex);
    for (const auto& [id, session] : state_->attached) all.push_back(session);
  }
  for (const std::shared_ptr<Session>& session : all) End(session, cause);
}

uint32_t SessionTable::attached() const {
  MutexLock lock(&state_->mutex);
  return static_cast<uint32_t>(state_->attached.size());
}

bool SessionTable::WaitAllClosed(uint64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  MutexLock lock(&state_->mutex);
  while (state_->unclosed > 0) {
    if (!state_->one_closed.WaitUntil(&state_->mutex, deadline)) return state_->unclosed == 0;
  }
  return true;
}

}  // namespace kvtriage
