// The KV heads of one model on several ranks: a session, a cache and column sums for each.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_RANK_CACHES_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_RANK_CACHES_H_

#include <memory>
#include <vector>

#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {

GroupKey NewGroupKey();

class RankCaches {
 public:
  static constexpr uint32_t kLayers = 2, kHeads = 2, kRows = 16;  // heads per rank

  RankCaches(EngineWorld& world, uint32_t ranks);

  uint32_t size() const { return static_cast<uint32_t>(caches_.size()); }
  const std::shared_ptr<Session>& session(uint32_t rank) const { return sessions_[rank]; }
  WorkerCache& cache(uint32_t rank) { return *caches_[rank]; }

  // Column sum of a row, for a head of the model.
  void SetScore(uint32_t layer, uint32_t head, uint32_t row, float score);
  // Numbers with many ties, of a stream of their own per seed.
  void SetScores(uint64_t seed);

  // Attention from the sums, heads share a layer's set, in place; group `key`.
  CompressSpec Spec(uint32_t rank, const GroupKey& key, uint32_t kept);
  PendingCall Start(uint32_t rank, CompressSpec spec,
                    absl::Duration deadline = absl::Seconds(30)) const;

  // The best `kept` rows of a layer by the float64 sum over all heads, ties to the lower row.
  std::vector<int32_t> Best(uint32_t layer, uint32_t kept) const;

  std::vector<std::vector<std::byte>> Memory() const;  // per rank

 private:
  EngineWorld& world_;
  std::vector<std::shared_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<WorkerCache>> caches_;
  std::vector<float> scores_;  // [layers][heads of the model][rows]
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_RANK_CACHES_H_
