// Scorers that do not vote by query rows: all layers of a call go in one launch per stage, keys are
// read once per stage in whole pieces, shared memory without bank conflicts.
#include <string>

#include "kernels/cuda/projected_norms.h"
#include "kernels/cuda/score.h"
#include "tests/support/kernel_counts/counted_call.h"

namespace kvtriage {
namespace {

constexpr uint32_t kLayers = 3, kRows = 100, kHeads = 2, kGroup = 2, kElems = 64, kHidden = 70;
constexpr uint64_t kNumbers = uint64_t{kLayers} * kHeads * kRows;  // scores

class ScorerCounts {
 public:
  explicit ScorerCounts(std::vector<KernelCount>& counts)
      : counts_(counts),
        keys_(kLayers, kRows, kHeads, kElems),
        values_(kLayers, kRows, kHeads, kElems) {}

  std::vector<ScoreRequest> Requests(const ScoreSpec& spec, const AttentionInput& input) const {
    std::vector<ScoreRequest> requests(kLayers);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      requests[layer].layer = {.k = keys_.views[layer],
                               .v = values_.views[layer],
                               .sequence = keys_.sequence,
                               .q_heads = kHeads * kGroup};
      requests[layer].spec = spec;
      requests[layer].input = input;
      requests[layer].pool_end = kRows;
      requests[layer].sinks = 4;
    }
    return requests;
  }

  CountedCall Call(const ScoreSpec& spec, const AttentionInput& input) const {
    const std::vector<ScoreRequest> requests = Requests(spec, input);
    return CountCall([&](Workspace& workspace) {
      std::vector<ScoreResult> results;
      return CudaScoreLayers(requests, workspace, nullptr, results);
    });
  }

  void Add(const char* kernel, const CountedCall& call, uint64_t launches, const char* formula) {
    counts_.push_back({kernel, "launches, all layers", formula, call.launches, launches});
    counts_.push_back(
        {kernel, "extra shared-memory passes", "0", call.counters.shared_extra_passes, 0});
    counts_.push_back({kernel, "allocations in the call", "0", call.allocations, 0});
  }

  // `reads`: how often all keys are read in whole pieces.
  void AddReads(const char* kernel, const CountedCall& call, uint64_t reads, const char* formula) {
    counts_.push_back({kernel, "bytes of rows read, 16 at a time", formula,
                       call.counters.load_bytes[4], reads * kNumbers * keys_.row_bytes});
  }

 private:
  std::vector<KernelCount>& counts_;
  CountedCache keys_, values_;
};

CountedCall CountProjection(const ScorerCounts& scorers) {
  const CountedTensor weights(kHidden, kHeads * kGroup, kElems);
  AttentionInput input;
  input.output_projection = weights.view;
  const std::vector<ScoreRequest> requests = scorers.Requests({}, input);
  return CountCall([&](Workspace& workspace) {
    std::vector<ScoreResult> results(kLayers);
    std::vector<const ScoreRequest*> from;
    std::vector<ScoreResult*> to;
    for (uint32_t i = 0; i < kLayers; ++i) {
      from.push_back(&requests[i]);
      to.push_back(&results[i]);
    }
    return CudaProjectValues(from, workspace, to);
  });
}

}  // namespace

void CountScorers(std::vector<KernelCount>& counts) {
  ScorerCounts scorers(counts);
  const CountedCall norms = scorers.Call({.scorer = Scorer::kKeyNorm}, {});
  scorers.Add("key norms", norms, 1, "1");
  scorers.AddReads("key norms", norms, 1, "row bytes * heads * rows * layers");
  const CountedCall differences = scorers.Call({.scorer = Scorer::kKeyDiff}, {});
  scorers.Add("key differences", differences, 3, "sums, means, distances");
  scorers.AddReads("key differences", differences, 2, "2 * row bytes * heads * rows * layers");
  scorers.Add("LagKV", scorers.Call({.scorer = Scorer::kLagKv, .lag = 32}, {}), 2,
              "bad rows, deviations");

  AttentionInput sums;
  const CountedTensor columns(1, kHeads * kGroup, kRows);
  sums.source = AttentionSource::kColumnSums;
  sums.sums = columns.view;
  scorers.Add("column sums", scorers.Call({.scorer = Scorer::kAttention}, sums), 1, "1");
  scorers.Add("column sums times values, pooled",
              scorers.Call({.scorer = Scorer::kVatp, .pool = Pool::kAvg, .pool_kernel = 5}, sums),
              3, "sums, values, pool");

  AttentionInput queries;
  const CountedTensor q(kRows, kHeads * kGroup, kElems);
  queries.source = AttentionSource::kQuery;
  queries.q = q.view;
  scorers.Add("Expected Attention",
              scorers.Call({.scorer = Scorer::kExpectedAttention, .future = 8}, queries), 5,
              "sums, means, covariances, values, logits");

  const CountedCall projection = CountProjection(scorers);
  const char* kernel = "projected values";
  scorers.Add(kernel, projection, 1, "1");
  constexpr uint64_t kLists = kLayers * kHeads, kTokenBlocks = (kRows + 127) / 128;
  constexpr uint64_t kWeightRows = (kGroup * kHidden + 63) / 64 * 64, kSteps = kElems / 16;
  counts.push_back({kernel, "matrix instructions",
                    "lists * padded tokens / 16 * padded rows / 8 * elements / 16",
                    projection.counters.mma,
                    kLists * kTokenBlocks * 8 * (kWeightRows / 8) * kSteps});
  counts.push_back(
      {kernel, "extra passes of ldmatrix", "0", projection.counters.ldmatrix_extra_passes, 0});
  counts.push_back({kernel, "bytes in", "values once, weights once per block of 128 tokens",
                    projection.counters.async_copy_bytes,
                    2 * kElems * (kNumbers + kLists * kTokenBlocks * kGroup * kHidden)});
}

}  // namespace kvtriage
