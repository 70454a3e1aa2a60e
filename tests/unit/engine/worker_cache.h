// A worker's cache of several layers in lent memory, and what a call should do to it by brute
// force.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_WORKER_CACHE_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_WORKER_CACHE_H_

#include <memory>
#include <span>
#include <vector>

#include "tests/unit/engine/engine_world.h"

namespace kvtriage {

struct CacheShape {
  uint32_t blocks = 16;
  uint32_t block_slots = 4;
  std::vector<uint32_t> heads = {2, 2};  // KV heads per layer
  uint32_t group = 2;                    // query heads per KV head
  uint32_t dk = 4, dv = 6;
  DType dtype = DType::kF32;
  bool transposed_keys = false;
  uint32_t companion_bytes = 0;  // one opaque companion per layer
  bool writable = true;
  bool row_scales = false;  // K and V have a float32 per row
  bool v_in_k = false;      // MLA: V is the last dv elements of K's rows
  std::vector<Rope> ropes = {};
  std::vector<uint32_t> rope_of = {};  // per layer, 1-based; 0 and absent: no rotary part
};

class WorkerCache {
 public:
  // Every byte of the memory gets a number of its own stream; a tail behind the cache stays for
  // tensors.
  WorkerCache(std::shared_ptr<Session> session, const CacheShape& shape, uint64_t seed = 1,
              uint64_t tail_bytes = 1u << 16);

  uint64_t id() const { return cache_id_; }
  const CacheSpec& spec() const { return spec_; }
  const CacheShape& shape() const { return shape_; }
  Lent& lent() { return *lent_; }
  uint64_t tail_offset() const { return tail_; }

  // The sequence of `rows` rows over `table`, private blocks.
  SequenceSpec Sequence(uint64_t id, uint32_t rows, std::vector<int32_t> table) const;

  // `after` with the kept rows of `from` put where a call puts them: row j of a list becomes row
  // kept[j]. `from` = memory before the call. Only rows of `outcome`'s lists change.
  void Gather(const CompressAnswer& answer, const SequenceOutcome& outcome,
              const SequenceSpec& sequence, const std::vector<int32_t>& target_table,
              const WorkerCache& target, std::span<const std::byte> from,
              std::vector<std::byte>& after) const;

  // Bytes of one row (K, V and companions behind each other) of a table in `memory`.
  std::vector<std::byte> Row(std::span<const std::byte> memory, uint32_t layer, uint32_t head,
                             const std::vector<int32_t>& table, uint64_t slot) const;

 private:
  std::vector<ViewSpec> ViewsOf(uint32_t layer) const;

  CacheShape shape_;
  CacheSpec spec_;
  std::unique_ptr<Lent> lent_;
  uint64_t cache_id_ = 0;
  uint64_t tail_ = 0;
};

// Recency, `kept` rows, one set per head.
CompressSpec RecencySpec(const WorkerCache& cache, std::vector<SequenceSpec> sequences,
                         uint32_t kept);
// Random scores: every (layer, head) keeps other rows.
CompressSpec RandomSpec(const WorkerCache& cache, std::vector<SequenceSpec> sequences,
                        uint32_t kept, uint64_t random_key = 7);
void ActInPlace(CompressSpec& spec, uint32_t slot = 0);
void ActCopy(CompressSpec& spec, uint64_t cache_id);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_WORKER_CACHE_H_
