#include "tests/unit/engine/engine_world.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <string_view>

#include "absl/time/clock.h"
#include "tests/unit/engine/far_memory.h"

// Two threads may hold copies of one error. The count of its references lives in Abseil, whose
// packaged build ThreadSanitizer cannot see into: it takes the last drop for a race with every
// earlier read.
#if defined(__SANITIZE_THREAD__)
#define KVTRIAGE_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVTRIAGE_UNDER_TSAN 1
#endif
#endif
#ifdef KVTRIAGE_UNDER_TSAN
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\nrace:absl::*status_internal::\n";
}
#endif

namespace kvtriage {
namespace {

template <typename Spec>
PendingCall StartWith(Engine& engine, void (Engine::*method)(Call, Spec),
                      const std::shared_ptr<Session>& session, Spec spec, uint64_t body,
                      absl::Duration deadline) {
  PendingCall pending;
  auto promise = std::make_shared<std::promise<CallResult>>();
  pending.future = promise->get_future();
  pending.cancelled = std::make_shared<std::atomic<bool>>(false);
  Call call;
  call.session = session;
  call.body = {1, body, body};
  call.deadline = absl::Now() + deadline;
  call.cancelled = pending.cancelled;
  // A second call of `done` would throw and end the test program.
  call.done = [promise](CallResult result) { promise->set_value(std::move(result)); };
  (engine.*method)(std::move(call), std::move(spec));
  return pending;
}

RegisteredIds RegisterNow(Session& session, RegisterSpec spec) {
  std::promise<absl::StatusOr<RegisteredIds>> answer;
  session.memory().Register(std::move(spec), [&](auto ids) { answer.set_value(std::move(ids)); });
  absl::StatusOr<RegisteredIds> ids = answer.get_future().get();
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return *ids;
}

}  // namespace

EngineWorld::EngineWorld(const EngineLimits& limits, EngineObserver* observer,
                         std::unique_ptr<Backend> backend, std::vector<DeviceLane> lanes,
                         const DeviceList* devices)
    : devices_(devices) {
  if (backend == nullptr) backend = std::make_unique<PlainBackend>(hooks_);
  engine_ = std::make_unique<Engine>(limits, std::move(backend), observer, std::move(lanes));
  EXPECT_EQ(engine_->WaitReady(), absl::OkStatus());
  SessionLimits session_limits;
  session_limits.attach_per_second = 1'000'000;
  sessions_ = std::make_unique<SessionTable>(1, session_limits, doorkeeper_, mapper_, nullptr,
                                             nullptr, devices);
  sessions_->SetEngineEnd(
      [this](const std::shared_ptr<Session>& session, std::function<void()> finished) {
        engine_->EndSession(session, std::move(finished));
      });
}

EngineWorld::~EngineWorld() {
  sessions_.reset();
  if (devices_ != nullptr) SettleMappers(mapper_, *devices_);
}

std::shared_ptr<Session> EngineWorld::Attach() {
  auto session = sessions_->Attach(
      {"test/1", 0, 0}, [](const SessionNotice&) {}, [](EndCause) {});
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  const SessionToken& token = (*session)->token();
  const std::string_view bytes(reinterpret_cast<const char*>(token.data()), token.size());
  const auto bound = sessions_->Bind(bytes, {::getuid(), ::getgid(), ::getpid()}, UniqueFd());
  EXPECT_TRUE(bound.ok()) << bound.status().ToString();
  return *session;
}

void EngineWorld::End(const std::shared_ptr<Session>& session) {
  sessions_->End(session, EndCause::kClient);
  EXPECT_TRUE(sessions_->WaitAllClosed(20'000));
}

IdempotencyKey NewKey() {
  static std::atomic<uint64_t> next{1};
  IdempotencyKey key{};
  const uint64_t number = next++;
  for (size_t i = 0; i < 8; ++i) key[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

CallResult PendingCall::Get() {
  if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    ADD_FAILURE() << "no answer within 20 s";
    std::abort();  // the promise's owner is stuck, and so would be the rest of the test
  }
  return future.get();
}

bool PendingCall::Ready() const {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, CompressSpec spec,
                  uint64_t body, absl::Duration deadline) {
  return StartWith(world.engine(), &Engine::Compress, session, std::move(spec), body, deadline);
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session,
                  SelectRecomputeSpec spec, uint64_t body) {
  return StartWith(world.engine(), &Engine::SelectRecompute, session, std::move(spec), body,
                   absl::Seconds(30));
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, RerotateSpec spec,
                  uint64_t body) {
  return StartWith(world.engine(), &Engine::Rerotate, session, std::move(spec), body,
                   absl::Seconds(30));
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, ObserveSpec spec,
                  uint64_t body) {
  return StartWith(world.engine(), &Engine::Observe, session, std::move(spec), body,
                   absl::Seconds(30));
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, RewindSpec spec,
                  uint64_t body) {
  return StartWith(world.engine(), &Engine::Rewind, session, std::move(spec), body,
                   absl::Seconds(30));
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, FuseSpec spec,
                  uint64_t body) {
  return StartWith(world.engine(), &Engine::Fuse, session, std::move(spec), body,
                   absl::Seconds(30));
}

PendingCall Start(EngineWorld& world, const std::shared_ptr<Session>& session, RegisterSpec spec,
                  uint64_t body) {
  return StartWith(world.engine(), &Engine::Register, session, std::move(spec), body,
                   absl::Seconds(30));
}

CallResult RunCall(EngineWorld& world, const std::shared_ptr<Session>& session, CompressSpec spec,
                   uint64_t body) {
  return Start(world, session, std::move(spec), body).Get();
}

PendingCall Resolve(EngineWorld& world, const std::shared_ptr<Session>& session,
                    const IdempotencyKey& key) {
  CompressSpec spec;
  spec.header = {key, true};
  return Start(world, session, std::move(spec), 999);
}

const CompressAnswer& CompressOf(const CallResult& result) {
  return std::get<CompressAnswer>(result.answer->body);
}

Lent::Lent(std::shared_ptr<Session> session, uint64_t bytes, bool writable)
    : session_(std::move(session)), fd_(MakeLentMemfd(bytes)), bytes_(bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) std::abort();
  data_ = static_cast<std::byte*>(at);
  region_id_ = LendAgain(writable);
}

Lent::~Lent() { ::munmap(data_, bytes_); }

uint64_t Lent::LendAgain(bool writable) {
  RegisterSpec spec;
  if (LendOn::current != nullptr) {
    spec.regions.push_back(LendOn::current->Lend(data_, bytes_, writable));
    return RegisterNow(*session_, std::move(spec)).region_ids[0];
  }
  const uint64_t ticket = session_->memory().AddTicket(Duplicate(fd_)).value();
  spec.regions.push_back({ticket, 0, bytes_, writable, 0, 0, ""});
  return RegisterNow(*session_, std::move(spec)).region_ids[0];
}

uint64_t RegisterCache(const std::shared_ptr<Session>& session, CacheSpec spec) {
  RegisterSpec registration;
  registration.caches.push_back({std::move(spec), 0});
  return RegisterNow(*session, std::move(registration)).cache_ids[0];
}

}  // namespace kvtriage
