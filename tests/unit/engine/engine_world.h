// An engine with everything below it that is real: sessions, memfds, mappings, ledgers. Only the
// backend is made of plain loops (plain_backend.h).
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_ENGINE_WORLD_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_ENGINE_WORLD_H_

#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "service/engine/engine.h"
#include "service/engine/engine_observer.h"
#include "service/memory/mapper.h"
#include "service/session/doorkeeper.h"
#include "service/session/session_table.h"
#include "tests/support/lent_memfd.h"
#include "tests/support/reason_of.h"
#include "tests/unit/engine/plain_backend.h"

namespace kvtriage {

class EngineWorld {
 public:
  // `devices` (null: none) and their `lanes`; they outlive the world.
  explicit EngineWorld(const EngineLimits& limits = {}, EngineObserver* observer = nullptr,
                       std::unique_ptr<Backend> backend = nullptr,
                       std::vector<DeviceLane> lanes = {}, const DeviceList* devices = nullptr);
  ~EngineWorld();

  Engine& engine() { return *engine_; }
  BackendHooks& hooks() { return *hooks_; }
  SessionTable& sessions() { return *sessions_; }

  std::shared_ptr<Session> Attach();  // bound
  // Returns when jobs have ended and mappings are closed.
  void End(const std::shared_ptr<Session>& session);

 private:
  std::shared_ptr<BackendHooks> hooks_ = std::make_shared<BackendHooks>();
  Doorkeeper doorkeeper_;
  Mapper mapper_;
  const DeviceList* const devices_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
};

// A key of its own for every call.
IdempotencyKey NewKey();

// A call whose result can be waited for.
struct PendingCall {
  std::future<CallResult> future;
  std::shared_ptr<std::atomic<bool>> cancelled;

  CallResult Get();  // fails the test after 20 s
  bool Ready() const;
};
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, CompressSpec spec,
                  uint64_t body = 1, absl::Duration deadline = absl::Seconds(30));
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session,
                  SelectRecomputeSpec spec, uint64_t body = 1);
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, RerotateSpec spec,
                  uint64_t body = 1);
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, FuseSpec spec,
                  uint64_t body = 1);
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, RegisterSpec spec,
                  uint64_t body = 1);
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, ObserveSpec spec,
                  uint64_t body = 1);
PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, RewindSpec spec,
                  uint64_t body = 1);
CallResult RunCall(EngineWorld& world, const std::shared_ptr<Session>& session, CompressSpec spec,
                   uint64_t body = 1);
// A question what became of a key.
PendingCall Resolve(EngineWorld& world, const std::shared_ptr<Session>& session,
                    const IdempotencyKey& key);

const CompressAnswer& CompressOf(const CallResult& result);

// Memory that one worker lends: its own mapping of the memfd stays open beside the service's. On a
// device while a LendOn lives (far_memory.h).
class Lent {
 public:
  Lent(std::shared_ptr<Session> session, uint64_t bytes, bool writable = true);
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  // Lends (more of) the memory again under another id.
  uint64_t LendAgain(bool writable);

  uint64_t region_id() const { return region_id_; }
  std::byte* data() { return data_; }
  uint64_t bytes() const { return bytes_; }
  std::vector<std::byte> Copy() const { return {data_, data_ + bytes_}; }

 private:
  std::shared_ptr<Session> session_;
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t region_id_ = 0;
};

uint64_t RegisterCache(const std::shared_ptr<Session>& session, CacheSpec spec);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_ENGINE_WORLD_H_
