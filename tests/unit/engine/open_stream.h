// A CompressLayers stream as a test drives it: what comes back can be waited for.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_OPEN_STREAM_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_OPEN_STREAM_H_

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/engine/engine_world.h"

namespace kvtriage {

class OpenStream {
 public:
  // Opens it; a second `ended` fails the test.
  OpenStream(EngineWorld& world, const std::shared_ptr<Session>& session, CompressSpec spec,
             absl::Duration deadline = absl::Seconds(30));

  // Each waits, and fails the test after 20 s.
  bool Opened();  // false: it ended instead
  std::vector<std::pair<uint32_t, CallResult>> Done(size_t count);
  CallResult Ended();
  bool HasEnded() const;
  size_t done() const;

  // The layer's key. Two streams with equal `body` have the same bytes.
  IdempotencyKey Ready(uint32_t layer, uint64_t body = 1);
  void Ready(uint32_t layer, const IdempotencyKey& key, uint64_t body = 1);
  void HalfClose() { world_.engine().CloseLayers(stream_); }
  void Drop(const absl::Status& why) { world_.engine().DropLayers(stream_, why); }

 private:
  struct Heard;
  EngineWorld& world_;
  std::shared_ptr<Heard> heard_;
  std::shared_ptr<LayerStream> stream_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_OPEN_STREAM_H_
