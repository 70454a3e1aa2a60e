// What every idempotency key of every session stands for: one key, one effect.
//
//            Begin                 Finish(ok, or an error that touched the cache)
//   unseen ---------> running ------------------------------------------> stored ----> expired
//     |                  |  Finish(error, unharmed): unseen again, or dead when a resolve waited
//     `-- Resolve -----> dead <--- MarkDead (the job was taken out of the queue)
//
// A stored answer turns expired (its key is remembered, its answer is gone) by age, number or
// bytes. Not thread-safe: the engine's lock guards it, and callbacks come out to be called without
// it.
#ifndef KVTRIAGE_SERVICE_ENGINE_IDEMPOTENCY_H_
#define KVTRIAGE_SERVICE_ENGINE_IDEMPOTENCY_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "service/engine/call_kind.h"
#include "service/engine/engine.h"

namespace kvtriage {

struct CallKey {
  uint64_t session_id = 0;
  IdempotencyKey key{};
};

class IdempotencyStore {
 public:
  using Done = std::function<void(CallResult)>;

  explicit IdempotencyStore(const EngineLimits& limits) : limits_(limits) {}

  enum class Found : uint8_t {
    kUnseen,    // `done` is untouched; run the call between Begin and Finish, or refuse it
    kAnswered,  // `result` holds a stored answer, or KEY_REUSED, RESULT_EXPIRED, KEY_DEAD
    kWaits,     // `done` was taken; Finish or MarkDead gives it back
  };
  Found Arrive(const CallKey& key, CallKind kind, const BodyDigest& body, absl::Time now,
               Done& done, CallResult& result);

  // Makes sure that nothing more comes of the key; never answers kUnseen. A job that is still
  // queued is taken out and marked dead by the caller first.
  Found Resolve(const CallKey& key, CallKind kind, absl::Time now, Done& done, CallResult& result);

  // The unseen key runs from now on.
  void Begin(const CallKey& key, CallKind kind, const BodyDigest& body);

  // The running job's end. Gives back everyone who waited for it.
  std::vector<Done> Finish(const CallKey& key, absl::Time now, const CallResult& result);

  // The key's queued job will never run. Gives back everyone who waited for it.
  std::vector<Done> MarkDead(const CallKey& key);

  // Whether a repeat (not a resolve) waits for the running job.
  bool HasRepeats(const CallKey& key) const;

  // Forgets everything of a session. Gives back those who still wait.
  std::vector<Done> DropSession(uint64_t session_id);

  uint64_t stored_bytes() const { return bytes_; }

 private:
  enum class State : uint8_t { kRunning, kStored, kExpired, kDead };
  struct Entry {
    State state = State::kRunning;
    CallKind kind = CallKind::kCompress;
    BodyDigest body;
    std::vector<Done> repeats, resolvers;  // of a running job
    CallResult result;                     // kStored
    absl::Time expires;
    uint64_t bytes = 0;
    std::list<CallKey>::iterator age;                // kStored: in by_age_
    std::list<IdempotencyKey>::iterator in_session;  // kStored: in SessionKeys::stored
  };
  struct SessionKeys {
    std::map<IdempotencyKey, Entry> entries;
    std::list<IdempotencyKey> stored;      // oldest first
    std::list<IdempotencyKey> remembered;  // stored, expired and dead, oldest first
    uint64_t bytes = 0;
  };

  static std::vector<Done> TakeWaiters(Entry& entry);
  Entry* Find(const CallKey& key);
  static CallResult Known(const Entry& entry);
  void Store(const CallKey& key, Entry& entry, absl::Time now, const CallResult& result);
  void Expire(const CallKey& key, Entry& entry);
  void ExpireOld(absl::Time now);
  void Remember(const CallKey& key);

  const EngineLimits limits_;
  std::unordered_map<uint64_t, SessionKeys> sessions_;
  std::list<CallKey> by_age_;  // stored answers of all sessions, oldest first
  uint64_t bytes_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_IDEMPOTENCY_H_
