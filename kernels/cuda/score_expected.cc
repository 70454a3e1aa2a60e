#include "kernels/cuda/score_expected.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "kernels/core/average_turn.h"
#include "kernels/core/expected_rules.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/product_tile.h"
#include "kernels/cuda/query_moments.h"
#include "kernels/cuda/score_expected_launch.h"

namespace kvtriage {
namespace {

// Layers of a model share their rotation: it is averaged once.
class SharedTurn {
 public:
  const AverageTurn& Of(const ScoreRequest& request) {
    if (!turn_ || rope_ != request.rope || first_ != request.next_position ||
        count_ != request.spec.future) {
      rope_ = request.rope;
      first_ = request.next_position;
      count_ = request.spec.future;
      turn_.emplace(rope_, first_, count_);
    }
    return *turn_;
  }

 private:
  std::optional<AverageTurn> turn_;
  const Rope* rope_ = nullptr;
  uint64_t first_ = 0;
  uint32_t count_ = 0;
};

uint64_t SinksOf(const ScoreRequest& request) {
  return std::min(request.sinks, request.layer.sequence.rows);
}

class ExpectedScorer {
 public:
  ExpectedScorer(ScoreRequests requests, Workspace& workspace, ScoreResults results)
      : requests_(requests), workspace_(workspace), results_(results), inputs_(workspace) {}

  absl::Status Run() {
    KVTRIAGE_ASSIGN_OR_RETURN(lists_, ScoreLists::Make(requests_, true, workspace_, inputs_));
    KVTRIAGE_ASSIGN_OR_RETURN(moments_, DeviceMoments::Make(requests_, workspace_));
    KVTRIAGE_RETURN_IF_ERROR(TakeRoom());
    KVTRIAGE_RETURN_IF_ERROR(moments_.Run(workspace_));
    for (size_t i = 0; i < requests_.size(); ++i) KVTRIAGE_RETURN_IF_ERROR(FindForms(i));
    KVTRIAGE_RETURN_IF_ERROR(Launch());
    for (size_t i = 0; i < requests_.size(); ++i) KVTRIAGE_RETURN_IF_ERROR(ScoreRows(i));
    return absl::OkStatus();
  }

 private:
  // Everything that is needed before the first launch, so that a workspace that is too small costs
  // nothing else. Forms of requests are in their order; those without heads have none.
  absl::Status TakeRoom() {
    std::vector<uint32_t> rows, first_form;
    uint64_t logits = 0, linear = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const LayerRows& layer = requests_[i]->layer;
      const uint32_t heads = layer.k.layout.heads, group = layer.q_heads / heads;
      const bool asks = SinksOf(*requests_[i]) < layer.sequence.rows;
      first_logit_.push_back(logits);
      for (uint32_t head = 0; head < heads; ++head) {
        rows.push_back(layer.sequence.rows);
        first_form.push_back(moments_.first_list(i) + (asks ? head * group : 0));
      }
      if (!asks) continue;
      for (uint32_t h = 0; h < layer.q_heads; ++h) {
        const uint32_t list = moments_.first_list(i) + h;
        forms_.push_back({.quadratic = moments_.covariance(list)});
        logits += layer.sequence.rows;
        linear += layer.k.layout.row_elems;
      }
    }
    first_form.push_back(moments_.lists());
    args_.plan = lists_.plan();
    tiles_ = CountPieces(rows, kProductTile);
    KVTRIAGE_ASSIGN_OR_RETURN(args_.tiles, CutIntoPieces(rows, kProductTile, workspace_));
    KVTRIAGE_ASSIGN_OR_RETURN(args_.first_form,
                              workspace_.Upload(std::span<const uint32_t>(first_form)));
    KVTRIAGE_ASSIGN_OR_RETURN(device_forms_, workspace_.Take<QueryForm>(forms_.size()));
    KVTRIAGE_ASSIGN_OR_RETURN(args_.norms, workspace_.Take<float>(lists_.rows()));
    KVTRIAGE_ASSIGN_OR_RETURN(logits_, workspace_.Take<float>(logits));
    KVTRIAGE_ASSIGN_OR_RETURN(linear_, workspace_.Take<float>(linear));
    args_.forms = device_forms_;
    return absl::OkStatus();
  }

  // What the query heads of a request will ask with: head by head, because the matrices of all
  // layers together may be large.
  absl::Status FindForms(size_t i) {
    const ScoreRequest& request = *requests_[i];
    const LayerRows& layer = request.layer;
    results_[i]->skipped_rows = 0;
    if (SinksOf(request) == layer.sequence.rows) return absl::OkStatus();
    std::vector<uint8_t> usable(layer.q_heads);
    for (uint32_t h = 0; h < layer.q_heads; ++h) {
      const uint32_t list = moments_.first_list(i) + h;
      QueryForm& form = forms_[list];
      form.linear = linear_;
      form.logits = logits_ + first_logit_[i] + uint64_t{h} * layer.sequence.rows;
      linear_ += layer.k.layout.row_elems;
      QueryMoments moments;
      KVTRIAGE_RETURN_IF_ERROR(moments_.Download(list, workspace_, moments));
      results_[i]->skipped_rows += static_cast<uint32_t>(moments.skipped);
      if (moments.rows == 0) continue;
      usable[h] = 1;
      form.usable = 1;
      KVTRIAGE_RETURN_IF_ERROR(PlaceForm(request, list, moments));
    }
    return CheckUsable(usable, layer.q_heads / layer.k.layout.heads);
  }

  absl::Status PlaceForm(const ScoreRequest& request, uint32_t list, QueryMoments& moments) {
    const ExpectedForm made = FormOf(moments, turn_.Of(request), request.input.scale);
    KVTRIAGE_RETURN_IF_ERROR(
        workspace_.Fill<float>(const_cast<float*>(forms_[list].linear), made.linear));
    return workspace_.Fill<float>(moments_.covariance(list), made.quadratic);
  }

  absl::Status Launch() {
    if (lists_.pieces() == 0) return absl::OkStatus();
    KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchValueNorms(args_, lists_.pieces(), workspace_.stream()),
                                  "score_expected.norms");
    if (forms_.empty()) return absl::OkStatus();
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Fill<QueryForm>(device_forms_, forms_));
    return CudaStatus(LaunchExpectedLogits(args_, tiles_, workspace_.stream()),
                      "score_expected.logits");
  }

  absl::Status ScoreRows(size_t i) {
    const ScoreRequest& request = *requests_[i];
    const uint64_t tokens = request.layer.sequence.rows, first = SinksOf(request);
    const uint32_t heads = request.layer.k.layout.heads, group = request.layer.q_heads / heads;
    ScoreResult& result = *results_[i];
    result.lists = heads;
    result.usable_rows.assign(heads, 0);
    result.scores.resize(heads * tokens);
    std::vector<float> norms, logits;
    KVTRIAGE_RETURN_IF_ERROR(lists_.Download(args_.norms, i, workspace_, norms));
    if (first < tokens) logits.resize(group * tokens);
    for (uint32_t head = 0; head < heads; ++head) {
      const std::span<const float> of_head(norms.data() + head * tokens, tokens);
      KVTRIAGE_RETURN_IF_ERROR(
          workspace_.Download<float>(logits_ + first_logit_[i] + head * logits.size(), logits));
      std::vector<std::span<const float>> weights;
      for (uint32_t h = 0; h < group && first < tokens; ++h) {
        if (forms_[moments_.first_list(i) + head * group + h].usable == 0) continue;
        const std::span<float> mine(logits.data() + h * tokens, tokens);
        ExpectedSoftmax(of_head, first, mine);
        weights.push_back(mine);
      }
      ExpectedScores(weights, of_head, first, group, request.spec.epsilon,
                     {result.scores.data() + head * tokens, tokens});
    }
    return absl::OkStatus();
  }

  const ScoreRequests requests_;
  Workspace& workspace_;
  const ScoreResults results_;
  DeviceInputs inputs_;
  ScoreLists lists_;
  DeviceMoments moments_;
  SharedTurn turn_;
  ExpectedArgs args_{};
  std::vector<QueryForm> forms_;  // [lists of moments]
  QueryForm* device_forms_ = nullptr;
  std::vector<uint64_t> first_logit_;  // of every request
  float *logits_ = nullptr, *linear_ = nullptr;
  uint32_t tiles_ = 0;
};

}  // namespace

absl::Status CudaScoreExpected(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  return ExpectedScorer(requests, workspace, results).Run();
}

}  // namespace kvtriage
