#include "kernels/cuda/score.h"

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/score_rules.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/score_critical.h"
#include "kernels/cuda/score_expected.h"
#include "kernels/cuda/score_keys.h"
#include "kernels/cuda/score_lagkv.h"
#include "kernels/cuda/score_lists.h"
#include "kernels/cuda/score_queries.h"
#include "kernels/cuda/score_sums.h"

namespace kvtriage {
namespace {

using Part = absl::Status (*)(ScoreRequests, Workspace&, ScoreResults);

// Requests that go together, with their results.
struct Batch {
  std::vector<const ScoreRequest*> requests;
  std::vector<ScoreResult*> results;
};

absl::Status ScoreByNumbers(ScoreRequests requests, Workspace&, ScoreResults results) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const uint64_t tokens = requests[i]->layer.sequence.rows;
    ScoreResult& result = *results[i];
    result.lists = requests[i]->layer.k.layout.heads;
    result.usable_rows.assign(result.lists, 0);
    result.scores.resize(result.lists * tokens);
    for (uint64_t head = 0; head < result.lists; ++head) {
      ScoreByNumber(*requests[i], head, {result.scores.data() + head * tokens, tokens});
    }
  }
  return absl::OkStatus();
}

// What scores a request, and which others it may share launches with: those of the same kind.
struct Kind {
  Part part;
  bool (*takes)(const ScoreRequest&);
};

template <Scorer kScorer>
bool Is(const ScoreRequest& request) {
  return request.spec.scorer == kScorer;
}
template <Scorer kScorer>
bool FromSums(const ScoreRequest& request) {
  return Is<kScorer>(request) && request.input.source == AttentionSource::kColumnSums;
}

// The first that takes a request scores it.
constexpr Kind kKinds[] = {
    {ScoreByNumbers, Is<Scorer::kRecency>},
    {ScoreByNumbers, Is<Scorer::kRandom>},
    {CudaScoreKeys, Is<Scorer::kKeyNorm>},
    {CudaScoreKeys, Is<Scorer::kKeyDiff>},
    {CudaScoreLagKv, Is<Scorer::kLagKv>},
    {CudaScoreExpected, Is<Scorer::kExpectedAttention>},
    {CudaScoreSums, FromSums<Scorer::kAttention>},
    {CudaScoreSums, FromSums<Scorer::kVatp>},
    {CudaScoreCritical, Is<Scorer::kCritical>},
    {CudaScoreQueries, [](const ScoreRequest&) { return true; }},
};

bool IsDeviceMemory(const absl::Status& status) {
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  return info && info->reason == ErrorReason::kDeviceMemory;
}

// The part on all requests, in as many equal batches as the workspace asks for.
absl::Status RunInBatches(Part part, const Batch& all, Workspace& workspace,
                          const std::function<absl::Status()>& stop) {
  const size_t total = all.requests.size();
  for (size_t done = 0, size = total; done < total;) {
    if (stop) KVTRIAGE_RETURN_IF_ERROR(stop());
    workspace.Reset();
    const size_t count = std::min(size, total - done);
    const absl::Status status = part(ScoreRequests(all.requests).subspan(done, count), workspace,
                                     ScoreResults(all.results).subspan(done, count));
    if (status.ok()) {
      done += count;
      continue;
    }
    if (!IsDeviceMemory(status) || count == 1) return status;
    KVTRIAGE_RETURN_IF_ERROR(workspace.Finish());
    // One batch more, equal ones: the next smaller size that makes a difference.
    size = std::min(count - 1, CeilDiv(total, CeilDiv(total, count) + 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaScoreLayers(std::span<const ScoreRequest> requests, Workspace& workspace,
                             const std::function<absl::Status()>& stop,
                             std::vector<ScoreResult>& results) {
  results.assign(requests.size(), {});
  std::array<Batch, std::size(kKinds)> kinds;
  Batch pooled;
  for (size_t i = 0; i < requests.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(CheckScoreInputs(requests[i]));
    const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](const Kind& k) { return k.takes(requests[i]); });
    Batch& batch = kinds[static_cast<size_t>(kind - kKinds)];
    batch.requests.push_back(&requests[i]);
    batch.results.push_back(&results[i]);
    if (!Pools(requests[i].spec)) continue;
    pooled.requests.push_back(&requests[i]);
    pooled.results.push_back(&results[i]);
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    KVTRIAGE_RETURN_IF_ERROR(RunInBatches(kKinds[i].part, kinds[i], workspace, stop));
  }
  for (ScoreResult& result : results) CountNonfinite(result);
  KVTRIAGE_RETURN_IF_ERROR(RunInBatches(CudaPoolScores, pooled, workspace, stop));
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].spec.scorer == Scorer::kCritical) FinishCritical(requests[i].spec, results[i]);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
