#include "service/engine/idempotency.h"

#include <iterator>
#include <utility>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

constexpr char kField[] = "header.idempotency_key";

CallResult Refusal(absl::Status status) {
  CallResult result;
  result.status = std::move(status);
  return result;
}

CallResult KeyReused() {
  return Refusal(Error(ErrorReason::kKeyReused, kField, "the key belongs to another request"));
}

// What it means for the cache when a job ends like this. Only an unharmed cache makes a key free
// again.
bool LeftCacheUnharmed(const CallResult& result) {
  if (result.status.ok()) return false;
  const auto info = GetErrorInfo(result.status);
  return !info || info->cache_state == CacheState::kUnharmed;
}

}  // namespace

std::vector<IdempotencyStore::Done> IdempotencyStore::TakeWaiters(Entry& entry) {
  std::vector<Done> waiters = std::move(entry.repeats);
  std::move(entry.resolvers.begin(), entry.resolvers.end(), std::back_inserter(waiters));
  entry.repeats.clear();
  entry.resolvers.clear();
  return waiters;
}

IdempotencyStore::Entry* IdempotencyStore::Find(const CallKey& key) {
  const auto session = sessions_.find(key.session_id);
  if (session == sessions_.end()) return nullptr;
  const auto entry = session->second.entries.find(key.key);
  return entry == session->second.entries.end() ? nullptr : &entry->second;
}

CallResult IdempotencyStore::Known(const Entry& entry) {
  switch (entry.state) {
    case State::kStored: {
      CallResult result = entry.result;
      result.replayed = true;
      return result;
    }
    case State::kDead:
      return Refusal(Error(ErrorReason::kKeyDead, kField, "the key was resolved: it never runs"));
    case State::kExpired:
    case State::kRunning:  // never asked for
      break;
  }
  return Refusal(Error(ErrorReason::kResultExpired, kField,
                       "the call was done; its answer is no longer kept; read the ledger")
                     .State(CacheState::kSeeLedger));
}

IdempotencyStore::Found IdempotencyStore::Arrive(const CallKey& key, CallKind kind,
                                                 const BodyDigest& body, absl::Time now, Done& done,
                                                 CallResult& result) {
  ExpireOld(now);
  Entry* entry = Find(key);
  if (entry == nullptr) return Found::kUnseen;
  if (entry->state != State::kDead && (entry->kind != kind || !(entry->body == body))) {
    result = KeyReused();
    return Found::kAnswered;
  }
  if (entry->state == State::kRunning) {
    entry->repeats.push_back(std::move(done));
    return Found::kWaits;
  }
  result = Known(*entry);
  return Found::kAnswered;
}

IdempotencyStore::Found IdempotencyStore::Resolve(const CallKey& key, CallKind kind, absl::Time now,
                                                  Done& done, CallResult& result) {
  ExpireOld(now);
  Entry* entry = Find(key);
  if (entry == nullptr) {
    entry = &sessions_[key.session_id].entries[key.key];
    entry->state = State::kDead;
    result = Known(*entry);
    Remember(key);
    return Found::kAnswered;
  }
  if (entry->state != State::kDead && entry->kind != kind) {
    result = KeyReused();
    return Found::kAnswered;
  }
  if (entry->state == State::kRunning) {
    entry->resolvers.push_back(std::move(done));
    return Found::kWaits;
  }
  result = Known(*entry);
  return Found::kAnswered;
}

void IdempotencyStore::Begin(const CallKey& key, CallKind kind, const BodyDigest& body) {
  Entry& entry = sessions_[key.session_id].entries[key.key];
  entry.kind = kind;
  entry.body = body;
}

std::vector<IdempotencyStore::Done> IdempotencyStore::Finish(const CallKey& key, absl::Time now,
                                                             const CallResult& result) {
  ExpireOld(now);
  Entry* entry = Find(key);
  if (entry == nullptr) return {};  // the session went first
  const bool resolved = !entry->resolvers.empty();
  std::vector<Done> waiters = TakeWaiters(*entry);
  if (!LeftCacheUnharmed(result)) {
    Store(key, *entry, now, result);
  } else if (resolved) {
    entry->state = State::kDead;
    Remember(key);
  } else {
    sessions_[key.session_id].entries.erase(key.key);
  }
  return waiters;
}

std::vector<IdempotencyStore::Done> IdempotencyStore::MarkDead(const CallKey& key) {
  Entry* entry = Find(key);
  if (entry == nullptr) return {};
  std::vector<Done> waiters = TakeWaiters(*entry);
  entry->state = State::kDead;
  Remember(key);
  return waiters;
}

bool IdempotencyStore::HasRepeats(const CallKey& key) const {
  const auto session = sessions_.find(key.session_id);
  if (session == sessions_.end()) return false;
  const auto entry = session->second.entries.find(key.key);
  return entry != session->second.entries.end() && !entry->second.repeats.empty();
}

void IdempotencyStore::Store(const CallKey& key, Entry& entry, absl::Time now,
                             const CallResult& result) {
  SessionKeys& session = sessions_[key.session_id];
  entry.state = State::kStored;
  entry.result = result;
  entry.expires = now + absl::Milliseconds(limits_.results_ttl_ms);
  entry.bytes = result.answer == nullptr ? 0 : result.answer->bytes();
  session.bytes += entry.bytes;
  bytes_ += entry.bytes;
  entry.in_session = session.stored.insert(session.stored.end(), key.key);
  entry.age = by_age_.insert(by_age_.end(), key);
  // The newest goes last, so an answer that alone is over a limit ends up expired itself.
  while (session.stored.size() > limits_.results_per_session ||
         session.bytes > limits_.results_session_bytes) {
    const CallKey oldest{key.session_id, session.stored.front()};
    Expire(oldest, *Find(oldest));
  }
  while (bytes_ > limits_.results_bytes) {
    const CallKey oldest = by_age_.front();
    Expire(oldest, *Find(oldest));
  }
  Remember(key);
}

void IdempotencyStore::Expire(const CallKey& key, Entry& entry) {
  SessionKeys& session = sessions_[key.session_id];
  session.stored.erase(entry.in_session);
  by_age_.erase(entry.age);
  session.bytes -= entry.bytes;
  bytes_ -= entry.bytes;
  entry.result = {};
  entry.state = State::kExpired;
}

void IdempotencyStore::ExpireOld(absl::Time now) {
  while (!by_age_.empty()) {
    const CallKey oldest = by_age_.front();
    Entry& entry = *Find(oldest);
    if (entry.expires > now) return;
    Expire(oldest, entry);
  }
}

void IdempotencyStore::Remember(const CallKey& key) {
  SessionKeys& session = sessions_[key.session_id];
  session.remembered.push_back(key.key);
  if (session.remembered.size() <= limits_.remembered_keys) return;
  const CallKey oldest{key.session_id, session.remembered.front()};
  session.remembered.pop_front();
  Entry& entry = *Find(oldest);
  if (entry.state == State::kStored) Expire(oldest, entry);
  session.entries.erase(oldest.key);
}

std::vector<IdempotencyStore::Done> IdempotencyStore::DropSession(uint64_t session_id) {
  const auto session = sessions_.find(session_id);
  if (session == sessions_.end()) return {};
  std::vector<Done> waiters;
  for (auto& [key, entry] : session->second.entries) {
    if (entry.state == State::kStored) by_age_.erase(entry.age);
    std::vector<Done> waiting = TakeWaiters(entry);
    std::move(waiting.begin(), waiting.end(), std::back_inserter(waiters));
  }
  bytes_ -= session->second.bytes;
  sessions_.erase(session);
  return waiters;
}

}  // namespace kvtriage
