#include "kernels/cuda/select.h"

#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/core/select_rules.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/select_launch.h"

namespace kvtriage {
namespace {

// Segments of one launch and where their results go.
class SelectBatch {
 public:
  SelectBatch(Workspace& workspace, DeviceInputs& inputs)
      : workspace_(workspace), inputs_(inputs) {}

  // `protect` and the `slots` best of the other rows, ascending, into `kept`.
  absl::Status AddList(std::span<const float> scores, std::span<const int32_t> protect,
                       uint32_t slots, std::vector<int32_t>& kept) {
    const auto rows = static_cast<uint32_t>(scores.size());
    const uint32_t k = static_cast<uint32_t>(protect.size()) + slots;
    kept.resize(k);
    if (k == 0) return absl::OkStatus();
    if (k == rows) {
      std::iota(kept.begin(), kept.end(), 0);
      return absl::OkStatus();
    }
    SelectSegment segment{.heads = 1, .rows = rows, .k = k};
    KVTRIAGE_ASSIGN_OR_RETURN(segment.scores, Lists({&scores, 1}));
    KVTRIAGE_ASSIGN_OR_RETURN(segment.protect, inputs_.List(protect));
    segment.protect_count = static_cast<uint32_t>(protect.size());
    KVTRIAGE_ASSIGN_OR_RETURN(segment.keys, workspace_.Take<uint32_t>(rows));
    KVTRIAGE_ASSIGN_OR_RETURN(segment.out, workspace_.Take<int32_t>(k));
    outputs_.push_back({segment.out, &kept});
    segments_.push_back(segment);
    return absl::OkStatus();
  }

  // How many of the best heads * slots elements belong to each list, into `counts`.
  absl::Status AddCount(std::span<const std::span<const float>> scores,
                        std::span<const int32_t> candidates, uint32_t slots,
                        std::vector<uint32_t>& counts) {
    const auto heads = static_cast<uint32_t>(scores.size());
    counts.assign(heads, 0);
    if (slots == 0) return absl::OkStatus();
    SelectSegment segment{
        .heads = heads, .rows = static_cast<uint32_t>(candidates.size()), .k = heads * slots};
    KVTRIAGE_ASSIGN_OR_RETURN(segment.scores, Lists(scores));
    KVTRIAGE_ASSIGN_OR_RETURN(segment.candidates, workspace_.Upload(candidates));
    KVTRIAGE_ASSIGN_OR_RETURN(segment.keys,
                              workspace_.Take<uint32_t>(uint64_t{heads} * candidates.size()));
    KVTRIAGE_ASSIGN_OR_RETURN(segment.counts, workspace_.TakeZeroed<uint32_t>(heads));
    counted_.push_back({segment.counts, &counts});
    segments_.push_back(segment);
    return absl::OkStatus();
  }

  // One launch for everything that was added; then the batch is empty.
  absl::Status Run() {
    if (segments_.empty()) return absl::OkStatus();
    KVTRIAGE_ASSIGN_OR_RETURN(const SelectSegment* segments,
                              workspace_.Upload(std::span<const SelectSegment>(segments_)));
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        LaunchSelect(segments, static_cast<uint32_t>(segments_.size()), workspace_.stream()),
        "select.launch");
    for (const auto& [from, to] : outputs_) {
      KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<int32_t>(from, *to));
    }
    for (const auto& [from, to] : counted_) {
      KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<uint32_t>(from, *to));
    }
    segments_.clear();
    outputs_.clear();
    counted_.clear();
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<const float* const*> Lists(std::span<const std::span<const float>> lists) {
    std::vector<const float*> pointers;
    for (const std::span<const float> list : lists) {
      KVTRIAGE_ASSIGN_OR_RETURN(pointers.emplace_back(), Scores(list));
    }
    return workspace_.Upload(std::span<const float* const>(pointers));
  }
  // A list is ranked up to three times (shares, stages) and copied once.
  absl::StatusOr<const float*> Scores(std::span<const float> scores) {
    const auto found = copies_.find(scores.data());
    if (found != copies_.end()) return found->second;
    KVTRIAGE_ASSIGN_OR_RETURN(const float* copy, workspace_.Upload(scores));
    copies_[scores.data()] = copy;
    return copy;
  }

  Workspace& workspace_;
  DeviceInputs& inputs_;
  std::map<const float*, const float*> copies_;
  std::vector<SelectSegment> segments_;
  std::vector<std::pair<const int32_t*, std::vector<int32_t>*>> outputs_;
  std::vector<std::pair<const uint32_t*, std::vector<uint32_t>*>> counted_;
};

// The adaptive shares of every request that has some.
absl::Status ShareSlots(std::span<const SelectRequest> requests, SelectBatch& batch,
                        std::vector<std::vector<uint32_t>>& shares) {
  std::vector<std::vector<uint32_t>> counts(requests.size());
  std::vector<std::vector<int32_t>> candidates(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::optional<AdaptiveQuestion> question = AdaptiveOf(requests[i]);
    if (!question) continue;
    candidates[i] = Unprotected(requests[i].rows, requests[i].protect[0]);
    KVTRIAGE_RETURN_IF_ERROR(
        batch.AddCount(requests[i].scores, candidates[i], question->slots, counts[i]));
  }
  KVTRIAGE_RETURN_IF_ERROR(batch.Run());
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::optional<AdaptiveQuestion> question = AdaptiveOf(requests[i]);
    if (!question) continue;
    const std::vector<uint64_t> wide(counts[i].begin(), counts[i].end());
    shares[i] = AdaptiveShares(wide, question->slots, *requests[i].adaptive_alpha, question->least,
                               static_cast<uint32_t>(candidates[i].size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaSelectLists(std::span<const SelectRequest> requests, Workspace& workspace,
                             std::vector<SelectResult>& results) {
  results.assign(requests.size(), {});
  DeviceInputs inputs(workspace);
  SelectBatch batch(workspace, inputs);
  std::vector<std::vector<uint32_t>> slots(requests.size());
  KVTRIAGE_RETURN_IF_ERROR(ShareSlots(requests, batch, slots));
  // What the first stages take is protected in the second.
  std::vector<std::vector<std::vector<int32_t>>> first(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const SelectRequest& request = requests[i];
    slots[i] = FreeSlots(request, slots[i]);
    CountStages(request, slots[i], results[i]);
    if (slots[i].empty()) continue;
    first[i].resize(request.second_scores.size());
    for (size_t list = 0; list < request.second_scores.size(); ++list) {
      const uint32_t stage = FirstStageSlots(slots[i][list], request.first_stage);
      KVTRIAGE_RETURN_IF_ERROR(
          batch.AddList(request.scores[list], request.protect[list], stage, first[i][list]));
    }
  }
  KVTRIAGE_RETURN_IF_ERROR(batch.Run());
  for (size_t i = 0; i < requests.size(); ++i) {
    const SelectRequest& request = requests[i];
    results[i].kept.resize(request.scores.size());
    for (size_t list = 0; list < request.scores.size(); ++list) {
      std::vector<int32_t>& kept = results[i].kept[list];
      if (slots[i].empty()) {
        kept.resize(request.rows);
        std::iota(kept.begin(), kept.end(), 0);
      } else if (request.second_scores.empty()) {
        KVTRIAGE_RETURN_IF_ERROR(
            batch.AddList(request.scores[list], request.protect[list], slots[i][list], kept));
      } else {
        const uint32_t stage = FirstStageSlots(slots[i][list], request.first_stage);
        KVTRIAGE_RETURN_IF_ERROR(batch.AddList(request.second_scores[list], first[i][list],
                                               slots[i][list] - stage, kept));
      }
    }
  }
  return batch.Run();
}

}  // namespace kvtriage
