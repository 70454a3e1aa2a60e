#include "tests/unit/engine/rank_caches.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/splitmix64.h"

namespace kvtriage {

GroupKey NewGroupKey() { return NewKey(); }

RankCaches::RankCaches(EngineWorld& world, uint32_t ranks)
    : world_(world), scores_(size_t{kLayers} * kHeads * ranks * kRows) {
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    sessions_.push_back(world.Attach());
    caches_.push_back(std::make_unique<WorkerCache>(sessions_.back(),
                                                    CacheShape{.heads = {kHeads, kHeads}},
                                                    /*seed=*/rank + 1));
  }
}

void RankCaches::SetScore(uint32_t layer, uint32_t head, uint32_t row, float score) {
  scores_[(size_t{layer} * kHeads * size() + head) * kRows + row] = score;
  WorkerCache& cache = *caches_[head / kHeads];
  auto* sums = reinterpret_cast<float*>(cache.lent().data() + cache.tail_offset());
  sums[(size_t{layer} * kHeads + head % kHeads) * kRows + row] = score;
}

void RankCaches::SetScores(uint64_t seed) {
  uint64_t n = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t head = 0; head < kHeads * size(); ++head) {
      for (uint32_t row = 0; row < kRows; ++row) {
        SetScore(layer, head, row, static_cast<float>(SplitMix64(seed, n++) % 3));
      }
    }
  }
}

CompressSpec RankCaches::Spec(uint32_t rank, const GroupKey& key, uint32_t kept) {
  WorkerCache& cache = *caches_[rank];
  CompressSpec spec = RecencySpec(cache, {cache.Sequence(1, kRows, {5, 2, 9, 4})}, kept);
  spec.policy.score.scorer = Scorer::kAttention;
  spec.policy.granularity = Granularity::kPerLayer;
  spec.policy.window.all = true;
  spec.inputs.source = AttentionSource::kColumnSums;
  spec.inputs.sums_axis = HeadAxis::kKv;
  TensorSpec& sums = spec.inputs.sums.emplace();
  sums.region_id = cache.lent().region_id();
  sums.offset = cache.tail_offset();
  sums.layers = kLayers;
  sums.heads = kHeads;
  sums.elems = kRows;
  sums.elem_stride = sizeof(float);
  sums.row_stride = sums.head_stride = kRows * sizeof(float);
  sums.layer_stride = kHeads * sums.head_stride;
  spec.sequences[0].rows_count = 1;
  spec.group = GroupSpec{key, rank, size(), kHeads * rank, kHeads * size()};
  ActInPlace(spec);
  return spec;
}

PendingCall RankCaches::Start(uint32_t rank, CompressSpec spec, absl::Duration deadline) const {
  return kvtriage::Start(world_, sessions_[rank], std::move(spec), 1, deadline);
}

std::vector<int32_t> RankCaches::Best(uint32_t layer, uint32_t kept) const {
  std::vector<double> sums(kRows);
  for (uint32_t head = 0; head < kHeads * size(); ++head) {
    for (uint32_t row = 0; row < kRows; ++row) {
      sums[row] += scores_[(size_t{layer} * kHeads * size() + head) * kRows + row];
    }
  }
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](int32_t a, int32_t b) { return sums[a] > sums[b]; });
  rows.resize(kept);
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<std::vector<std::byte>> RankCaches::Memory() const {
  std::vector<std::vector<std::byte>> memory;
  for (const auto& cache : caches_) memory.push_back(cache->lent().Copy());
  return memory;
}

}  // namespace kvtriage
