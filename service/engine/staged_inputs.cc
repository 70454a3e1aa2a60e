#include "service/engine/staged_inputs.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/tensor_span.h"

namespace kvtriage {
namespace {

constexpr uint64_t kAlignment = 256;

class StagedInputs final : public Backend {
 public:
  StagedInputs(Backend& kernels, DeviceCopier& copier,
               std::shared_ptr<const std::span<std::byte>> room)
      : kernels_(kernels), copier_(copier), owner_(std::move(room)), room_(*owner_) {}

  std::string name() const override { return kernels_.name(); }

  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    results.clear();
    for (const ScoreRequest& request : requests) {
      if (stop) KVTRIAGE_RETURN_IF_ERROR(stop());
      ScoreRequest staged = request;
      KVTRIAGE_RETURN_IF_ERROR(Stage(staged.input));
      std::vector<ScoreResult> one;
      KVTRIAGE_RETURN_IF_ERROR(kernels_.Score({&staged, 1}, stop, one));
      results.push_back(std::move(one.front()));
    }
    return absl::OkStatus();
  }

  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    return kernels_.Select(requests, results);
  }
  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override {
    return kernels_.Measure(requests, stop, results);
  }
  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override {
    return kernels_.Diverge(request, result);
  }
  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override {
    return kernels_.Move(requests, result);
  }
  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override {
    return kernels_.Rotate(requests, result);
  }
  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override {
    return kernels_.CopyRows(copies, result);
  }

 private:
  // Moves all tensors of an input to the device.
  absl::Status Stage(AttentionInput& input) {
    uint64_t used = 0;
    for (TensorView* view : {&input.q, &input.o, &input.lse, &input.a, &input.z, &input.sums,
                             &input.sink_logits, &input.alibi_slopes, &input.output_projection,
                             &input.query_mean, &input.query_covariance}) {
      if (!*view) continue;
      const uint64_t bytes = SpanBytes(*view);
      if (!RangeFits(used, bytes, room_.size())) {
        return Error(ErrorReason::kDeviceMemory, "inputs",
                     "the call needs more working memory for what the service keeps")
            .Got(bytes)
            .Limit(room_.size() - used);
      }
      KVTRIAGE_RETURN_IF_ERROR(copier_.ToDevice(room_.data() + used, {view->base, bytes}));
      view->base = room_.data() + used;
      used = std::min<uint64_t>(room_.size(), CeilDiv(used + bytes, kAlignment) * kAlignment);
    }
    return absl::OkStatus();
  }

  Backend& kernels_;
  DeviceCopier& copier_;
  const std::shared_ptr<const std::span<std::byte>> owner_;
  const std::span<std::byte> room_;
};

}  // namespace

std::unique_ptr<Backend> StageInputs(Backend& kernels, DeviceCopier& copier,
                                     std::shared_ptr<const std::span<std::byte>> room) {
  return std::make_unique<StagedInputs>(kernels, copier, std::move(room));
}

}  // namespace kvtriage
