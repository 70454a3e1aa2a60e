// A session's memory with calls that wait for their answers.
#ifndef KVTRIAGE_TESTS_UNIT_MEMORY_LENDER_H_
#define KVTRIAGE_TESTS_UNIT_MEMORY_LENDER_H_

#include <atomic>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service/memory/device_memory.h"
#include "service/memory/mapper.h"
#include "service/memory/session_memory.h"
#include "tests/support/lent_memfd.h"

namespace kvtriage {

inline constexpr uint64_t kPage = 4096;

struct CountingObserver : MappingObserver {
  void OnMapped(DeviceIndex, uint64_t bytes) override { mapped += bytes; }
  void OnRetiring() override { ++retiring; }
  void OnUnmapped(DeviceIndex, uint64_t bytes) override {
    mapped -= bytes;
    --retiring;
  }
  std::atomic<uint64_t> mapped{0};
  std::atomic<int> retiring{0};
};

// Rows of one f32 per head and slot, all contiguous: heads * slots * 4 bytes a block.
inline ViewLayout SmallLayout(uint32_t blocks, uint32_t slots = 4, uint32_t heads = 2,
                              uint32_t elems = 8) {
  ViewLayout layout;
  layout.dtype = DType::kF32;
  layout.row_elems = elems;
  layout.elem_stride = 4;
  layout.slot_stride = elems * 4;
  layout.head_stride = slots * layout.slot_stride;
  layout.block_stride = heads * layout.head_stride;
  layout.num_blocks = blocks;
  layout.block_slots = slots;
  layout.heads = heads;
  return layout;
}
// Of SmallLayout with its defaults.
inline constexpr uint64_t kSmallBlockBytes = 4 * 2 * 8 * 4;

inline LayerSpec SmallLayer(uint32_t index, ViewSpec k, ViewSpec v) {
  LayerSpec layer;
  layer.layer_index = index;
  layer.q_heads = layer.kv_heads = 2;
  layer.k = std::move(k);
  layer.v = std::move(v);
  return layer;
}

class Lender {
 public:
  explicit Lender(const MemoryQuota& quota = {}, Mapper* shared = nullptr,
                  const DeviceList* devices = nullptr)
      : mapper_(shared != nullptr ? *shared : own_mapper_),
        devices_(devices),
        memory_(std::in_place, mapper_, quota, &observer_, devices) {}
  ~Lender() {
    memory_.reset();
    Settle();  // the observer is told of the last unmapping
  }

  SessionMemory* operator->() { return &*memory_; }
  SessionMemory& memory() { return *memory_; }
  Mapper& mapper() { return mapper_; }
  CountingObserver& observer() { return observer_; }

  uint64_t Ticket(const UniqueFd& fd) { return memory_->AddTicket(Duplicate(fd)).value(); }

  absl::StatusOr<RegisteredIds> Register(RegisterSpec spec) {
    std::promise<absl::StatusOr<RegisteredIds>> answer;
    memory_->Register(std::move(spec), [&](auto ids) { answer.set_value(std::move(ids)); });
    return answer.get_future().get();
  }
  // One region over all of `fd`.
  absl::StatusOr<uint64_t> RegisterOne(const UniqueFd& fd, uint64_t bytes, bool writable = true,
                                       uint32_t tag = 0) {
    RegisterSpec spec;
    spec.regions.push_back({Ticket(fd), 0, bytes, writable, tag, 0, ""});
    absl::StatusOr<RegisteredIds> ids = Register(std::move(spec));
    if (!ids.ok()) return ids.status();
    return ids->region_ids[0];
  }
  absl::StatusOr<UnregisterCounts> Unregister(UnregisterSpec spec, uint32_t deadline_ms = 10'000) {
    std::promise<absl::StatusOr<UnregisterCounts>> answer;
    memory_->Unregister(std::move(spec), deadline_ms,
                        [&](auto counts) { answer.set_value(std::move(counts)); });
    return answer.get_future().get();
  }
  absl::StatusOr<UnregisterCounts> UnregisterIds(std::vector<uint64_t> region_ids,
                                                 uint32_t deadline_ms = 10'000) {
    UnregisterSpec spec;
    spec.region_ids = std::move(region_ids);
    return Unregister(std::move(spec), deadline_ms);
  }
  // Everything that was posted to the mappers before has run.
  void Settle() {
    static const DeviceList none{absl::Status()};
    SettleMappers(mapper_, devices_ != nullptr ? *devices_ : none);
  }

 private:
  CountingObserver observer_;
  Mapper own_mapper_;
  Mapper& mapper_;
  const DeviceList* const devices_;
  std::optional<SessionMemory> memory_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_MEMORY_LENDER_H_
