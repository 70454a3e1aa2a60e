// A worker that blends: one layer of the real model's dump in lent memory, the reused rows as they
// were cached and room for the suffix, with the fresh rows beside it.
#ifndef KVTRIAGE_TESTS_INTEGRATION_BLEND_WORKER_H_
#define KVTRIAGE_TESTS_INTEGRATION_BLEND_WORKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvtriage/host_memory.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

class BlendWorker {
 public:
  static constexpr uint32_t kRows = 827, kReused = 808, kHeads = 3, kElems = 64;
  static constexpr uint64_t kRowBytes = kElems * 2;  // f16
  static constexpr uint64_t kPlane = uint64_t{kHeads} * kRows * kRowBytes;

  // Layer `layer` of tests/data/blend.safetensors.
  explicit BlendWorker(uint32_t layer);

  void Lend(Session& session);  // fails the test on an error
  Cache cache() const { return lent_.caches.at(0); }

  // The whole sequence; its reused rows stand at their old positions, the suffix at its rows'.
  Sequence Whole() const;
  RerotateRequest Rerotation() const;
  // Fresh rows of K or V as a dense tensor.
  TensorSpec Fresh(bool values) const;
  // Writes the fresh rows `rows` side by side and answers the Fuse of them.
  FuseRequest FuseOf(const std::vector<int32_t>& rows);
  std::vector<std::byte> Row(bool fresh, bool values, uint32_t head, int32_t row) const;

  // |reused - fresh| / |fresh| over the reused rows of K.
  double KeyDifference() const;
  std::vector<std::byte> CacheBytes() const;

 private:
  // Planes [heads][rows][elems]: cached K, cached V, fresh K, fresh V, and twice what is fused.
  static uint64_t PlaneOf(bool fresh, bool values) { return (fresh ? 2 : 0) + (values ? 1 : 0); }
  std::byte* At(uint64_t plane, uint32_t head, uint32_t row) const {
    return memory_.data() + plane * kPlane + (uint64_t{head} * kRows + row) * kRowBytes;
  }

  HostMemory memory_;
  Registered lent_;
  std::vector<int32_t> old_positions_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_TESTS_INTEGRATION_BLEND_WORKER_H_
