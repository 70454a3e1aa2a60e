// The scorer by query rows, on tensor cores and off them: K and V are read once, Q and O once per
// block of tokens, no product too many, all layers in one launch per stage.
#include <string>

#include "kernels/cuda/score.h"
#include "kernels/cuda/score_mma_shape.h"
#include "tests/support/kernel_counts/counted_call.h"

namespace kvtriage {
namespace {

constexpr uint32_t kLayers = 3, kTokens = 256, kHeads = 2, kGroup = 4, kElems = 128, kWindow = 16;
constexpr uint64_t kQueryRows = uint64_t{kGroup} * kWindow;  // of a KV head
constexpr uint64_t kLists = uint64_t{kLayers} * kHeads;

CountedCall CountScores(Scorer scorer, AttentionSource source) {
  const CountedCache keys(kLayers, kTokens, kHeads, kElems),
      values(kLayers, kTokens, kHeads, kElems);
  const CountedTensor q(kWindow, kHeads * kGroup, kElems), o(kWindow, kHeads * kGroup, kElems),
      lse(kWindow, kHeads * kGroup, 1);
  std::vector<ScoreRequest> requests(kLayers);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    requests[layer].layer = {.k = keys.views[layer],
                             .v = values.views[layer],
                             .sequence = keys.sequence,
                             .q_heads = kHeads * kGroup};
    requests[layer].spec.scorer = scorer;
    requests[layer].window = kWindow;
    requests[layer].input.source = source;
    requests[layer].input.q = q.view;
    requests[layer].input.o = o.view;
    requests[layer].input.lse = lse.view;
  }
  return CountCall([&](Workspace& workspace) {
    std::vector<ScoreResult> results;
    return CudaScoreLayers(requests, workspace, nullptr, results);
  });
}

void AddShared(const char* kernel, const CountedCall& call, uint64_t launches, const char* formula,
               std::vector<KernelCount>& counts) {
  counts.push_back({kernel, "launches, all layers", formula, call.launches, launches});
  counts.push_back({kernel, "extra shared-memory passes", "0",
                    call.counters.shared_extra_passes + call.counters.ldmatrix_extra_passes, 0});
  counts.push_back({kernel, "allocations in the call", "0", call.allocations, 0});
}

}  // namespace

void CountRowScorers(std::vector<KernelCount>& counts) {
  constexpr uint64_t kBlocks = kTokens / MmaShapeOf(kElems).block_tokens;
  constexpr uint64_t kRowBytes = uint64_t{kElems} * 2;
  const CountedCall joint = CountScores(Scorer::kObcJoint, AttentionSource::kQueryOutput);
  AddShared("score joint, mma", joint, 2, "gather + tokens", counts);
  counts.push_back({"score joint, mma", "mma instructions", "N/16 * R/8 * d/16 * 2 per list",
                    joint.counters.mma,
                    kLists * (kTokens / 16) * (kQueryRows / 8) * (kElems / 16) * 2});
  counts.push_back({"score joint, mma", "bytes copied to shared memory",
                    "K, V once; Q, O once per block", joint.counters.async_copy_bytes,
                    kLists * (2 * kTokens + 2 * kBlocks * kQueryRows) * kRowBytes});
  const CountedCall mass = CountScores(Scorer::kAttention, AttentionSource::kQueryOutput);
  AddShared("score attention, mma", mass, 2, "gather + tokens", counts);
  counts.push_back({"score attention, mma", "mma instructions", "N/16 * R/8 * d/16 per list",
                    mass.counters.mma, kLists * (kTokens / 16) * (kQueryRows / 8) * (kElems / 16)});
  counts.push_back({"score attention, mma", "bytes copied to shared memory",
                    "K once; Q once per block", mass.counters.async_copy_bytes,
                    kLists * (kTokens + kBlocks * kQueryRows) * kRowBytes});
  const CountedCall two_pass = CountScores(Scorer::kObcKey, AttentionSource::kQuery);
  AddShared("score key, Q alone", two_pass, 6, "gather + 2 x (parts, join) + tokens", counts);
}

}  // namespace kvtriage
