#include "service/engine/running_scores.h"

#include <algorithm>

namespace kvtriage {
namespace {

// What a sequence costs beside its arrays.
constexpr uint64_t kFixedBytes = 512;

template <typename T>
uint64_t BytesOf(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

bool OneLength(const TriageResult& result) {
  return std::all_of(result.kept.begin(), result.kept.end(),
                     [&](const auto& list) { return list.size() == result.kept.front().size(); });
}

// Whether all heads of the layer keep the same rows by construction.
bool HeadsShare(const TriageLayerOutcome& layer) { return layer.list_step == 0; }

}  // namespace

uint64_t RowSums::bytes() const {
  uint64_t bytes = 0;
  for (const LayerSums& layer : layers) bytes += BytesOf(layer.sums);
  return bytes;
}

uint64_t DraftRows::bytes() const {
  uint64_t bytes = BytesOf(positions);
  for (const DraftLayer& layer : layers) {
    bytes += BytesOf(layer.q) + BytesOf(layer.o) + BytesOf(layer.lse) + BytesOf(layer.sink_logits) +
             BytesOf(layer.alibi_slopes);
  }
  return bytes;
}

uint64_t RunningScores::bytes() const {
  uint64_t bytes = kFixedBytes;
  if (sums != nullptr) bytes += sums->bytes();
  if (draft != nullptr) bytes += draft->bytes();
  if (followed != nullptr) bytes += followed->bytes();
  return bytes;
}

std::shared_ptr<const RunningScores> Settled(const std::shared_ptr<const RunningScores>& scores,
                                             uint64_t total_dropped) {
  if (scores == nullptr || scores->dropped == total_dropped) return scores;
  if (scores->followed == nullptr || scores->followed->dropped != total_dropped) return nullptr;
  return scores->followed;
}

std::shared_ptr<const RowSums> GatherSums(const RowSums& sums, const TriageResult& result) {
  if (result.kept.empty() || result.layers.size() != sums.layers.size() || !OneLength(result)) {
    return nullptr;
  }
  auto gathered = std::make_shared<RowSums>();
  gathered->columns = static_cast<uint32_t>(result.kept.front().size());
  for (uint32_t l = 0; l < sums.layers.size(); ++l) {
    const LayerSums& from = sums.layers[l];
    if (from.lists == 1 && !HeadsShare(result.layers[l])) return nullptr;
    LayerSums& to = gathered->layers.emplace_back();
    to.lists = from.lists;
    for (uint32_t list = 0; list < from.lists; ++list) {
      for (const int32_t row : result.ListOf(l, list)) {
        const bool known = static_cast<uint32_t>(row) < sums.columns;
        to.sums.push_back(
            known ? from.sums[uint64_t{list} * sums.columns + static_cast<uint32_t>(row)] : 0.0f);
      }
    }
  }
  return gathered;
}

}  // namespace kvtriage
