#include "tests/unit/engine/open_stream.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/time/clock.h"
#include "kernels/core/mutex.h"
#include "tests/support/wait_until.h"

namespace kvtriage {

struct OpenStream::Heard {
  mutable Mutex mu;
  bool opened ABSL_GUARDED_BY(mu) = false;
  std::vector<std::pair<uint32_t, CallResult>> done ABSL_GUARDED_BY(mu);
  std::optional<CallResult> ended ABSL_GUARDED_BY(mu);
};

OpenStream::OpenStream(EngineWorld& world, const std::shared_ptr<Session>& session,
                       CompressSpec spec, absl::Duration deadline)
    : world_(world), heard_(std::make_shared<Heard>()) {
  LayersCall call;
  call.session = session;
  call.deadline = absl::Now() + deadline;
  call.opened = [heard = heard_](const CallResult& result) {
    EXPECT_TRUE(result.status.ok() && result.answer != nullptr);
    const MutexLock lock(&heard->mu);
    heard->opened = true;
  };
  call.layer_done = [heard = heard_](uint32_t layer, const CallResult& result) {
    EXPECT_TRUE(result.status.ok() && result.answer != nullptr);
    const MutexLock lock(&heard->mu);
    heard->done.emplace_back(layer, result);
  };
  call.ended = [heard = heard_](CallResult result) {
    const MutexLock lock(&heard->mu);
    EXPECT_FALSE(heard->ended.has_value()) << "ended twice";
    heard->ended = std::move(result);
  };
  spec.header = {};
  stream_ = world.engine().OpenLayers(std::move(call), std::move(spec));
}

bool OpenStream::Opened() {
  const auto settled = [this] {
    const MutexLock lock(&heard_->mu);
    return heard_->opened || heard_->ended.has_value();
  };
  EXPECT_TRUE(WaitUntil(settled));
  const MutexLock lock(&heard_->mu);
  return heard_->opened;
}

std::vector<std::pair<uint32_t, CallResult>> OpenStream::Done(size_t count) {
  EXPECT_TRUE(WaitUntil([&] { return done() >= count || HasEnded(); }));
  const MutexLock lock(&heard_->mu);
  return heard_->done;
}

CallResult OpenStream::Ended() {
  EXPECT_TRUE(WaitUntil([this] { return HasEnded(); }));
  const MutexLock lock(&heard_->mu);
  return heard_->ended.value_or(CallResult());
}

bool OpenStream::HasEnded() const {
  const MutexLock lock(&heard_->mu);
  return heard_->ended.has_value();
}

size_t OpenStream::done() const {
  const MutexLock lock(&heard_->mu);
  return heard_->done.size();
}

IdempotencyKey OpenStream::Ready(uint32_t layer, uint64_t body) {
  const IdempotencyKey key = NewKey();
  Ready(layer, key, body);
  return key;
}

void OpenStream::Ready(uint32_t layer, const IdempotencyKey& key, uint64_t body) {
  LayerCall call;
  call.header.key = key;
  call.body = {7, body, layer};
  call.layer = layer;
  world_.engine().AddLayer(stream_, std::move(call));
}

}  // namespace kvtriage
