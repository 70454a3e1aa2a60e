#include "tests/integration/rank_worker.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage::client {
namespace {

constexpr uint32_t kPlanes = 2 * RankWorker::kLayers;  // K and V of each layer
constexpr uint64_t kPlaneBytes =
    uint64_t{RankWorker::kHeads} * RankWorker::kRows * RankWorker::kElems * sizeof(float);
constexpr uint64_t kSumsAt = kPlanes * kPlaneBytes;
constexpr uint64_t kSumsBytes =
    uint64_t{RankWorker::kLayers} * RankWorker::kHeads * RankWorker::kRows * sizeof(float);

HostMemory MakeMemory() {
  absl::StatusOr<HostMemory> memory = HostMemory::Create(kSumsAt + kSumsBytes);
  if (memory.ok()) return *std::move(memory);
  std::cerr << memory.status() << "\n";
  std::abort();
}

}  // namespace

float RankWorker::Sum(uint64_t seed, uint32_t layer, uint32_t head, uint32_t row) {
  return static_cast<float>(
      SplitMix64(seed, (uint64_t{layer} << 40) + (uint64_t{head} << 20) + row) % 3);
}

std::vector<int32_t> RankWorker::Best(uint64_t seed, uint32_t layer, uint32_t ranks,
                                      uint32_t kept) {
  std::vector<double> sums(kRows);
  for (uint32_t head = 0; head < ranks * kHeads; ++head) {
    for (uint32_t row = 0; row < kRows; ++row) sums[row] += Sum(seed, layer, head, row);
  }
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(),
                   [&](int32_t a, int32_t b) { return sums[a] > sums[b]; });
  rows.resize(kept);
  std::sort(rows.begin(), rows.end());
  return rows;
}

RankWorker::RankWorker(uint64_t seed, uint32_t rank, uint32_t ranks)
    : seed_(seed), rank_(rank), ranks_(ranks), memory_(MakeMemory()) {
  for (uint32_t plane = 0; plane < kPlanes; ++plane) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint32_t row = 0; row < kRows; ++row) {
        std::fill_n(Row(plane, head, row), kElems, Stamp(plane, head, row));
      }
    }
  }
  auto* sums = reinterpret_cast<float*>(memory_.data() + kSumsAt);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint32_t row = 0; row < kRows; ++row) {
        *sums++ = Sum(seed, layer, rank * kHeads + head, row);
      }
    }
  }
}

float* RankWorker::Row(uint32_t plane, uint32_t head, uint32_t row) const {
  return reinterpret_cast<float*>(memory_.data() + plane * kPlaneBytes) +
         (uint64_t{head} * kRows + row) * kElems;
}

float RankWorker::Stamp(uint32_t plane, uint32_t head, uint32_t row) const {
  return static_cast<float>(((rank_ * kPlanes + plane) * kHeads + head) * 1000 + row);
}

void RankWorker::Lend(Session& session) {
  CacheSpec cache;
  cache.num_layers = kLayers;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    LayerSpec& spec = cache.layers.emplace_back();
    spec.layer_index = layer;
    spec.q_heads = spec.kv_heads = kHeads;
    const auto view = [layer](uint32_t plane) {
      return ContiguousView(Region::OfThisCall(0), (2 * layer + plane) * kPlaneBytes, kHeads, kRows,
                            kElems, DType::kF32);
    };
    spec.k = view(0);
    spec.v = view(1);
  }
  absl::StatusOr<Registered> lent = session.Register({{memory_.Lend()}, {cache}});
  ASSERT_TRUE(lent.ok()) << lent.status();
  lent_ = *std::move(lent);
}

TensorSpec RankWorker::Sums() const {
  return DenseTensor(lent_.regions.at(0), kSumsAt, DType::kF32, kLayers, 1, kHeads, kRows);
}

CompressRequest RankWorker::Request(uint32_t kept) const {
  CompressRequest request;
  request.cache = lent_.caches.at(0);
  Sequence& sequence = request.sequences.emplace_back();
  sequence.sequence_id = 1;
  sequence.logical_len = sequence.physical_len = kRows;
  sequence.table = {0};
  sequence.sharing = Sharing::kAllPrivate;
  sequence.rows_count = 1;
  request.policy = NamedPolicyTokens("h2o", kept);
  request.policy.parts.granularity = Granularity::kPerLayer;
  request.policy.parts.protect.emplace();
  request.inputs.source = ColumnSums{Sums(), HeadAxis::kKv};
  request.act = InPlace{};
  Group& group = request.group.emplace();
  std::memcpy(group.key.data(), &seed_, sizeof seed_);
  group.rank = rank_;
  group.size = ranks_;
  group.first_kv_head = rank_ * kHeads;
  group.total_kv_heads = ranks_ * kHeads;
  return request;
}

bool RankWorker::Holds(const std::vector<std::vector<int32_t>>& kept) const {
  for (uint32_t plane = 0; plane < kPlanes; ++plane) {
    const uint32_t rows = kept.empty() ? kRows : static_cast<uint32_t>(kept[plane / 2].size());
    for (uint32_t head = 0; head < kHeads; ++head) {
      for (uint32_t row = 0; row < rows; ++row) {
        const auto from = kept.empty() ? row : static_cast<uint32_t>(kept[plane / 2][row]);
        const float* const at = Row(plane, head, row);
        const float stamp = Stamp(plane, head, from);
        if (std::any_of(at, at + kElems, [stamp](float x) { return x != stamp; })) return false;
      }
    }
  }
  return true;
}

}  // namespace kvtriage::client
