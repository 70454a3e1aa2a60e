// Passes every call on to another backend and keeps the scores that go by.
#ifndef KVTRIAGE_TESTS_GOLDEN_SCORE_KEEPER_H_
#define KVTRIAGE_TESTS_GOLDEN_SCORE_KEEPER_H_

#include <string>
#include <vector>

#include "kvtriage/kernels/backend.h"

namespace kvtriage {

class ScoreKeeper : public Backend {
 public:
  explicit ScoreKeeper(Backend& backend) : backend_(backend) {}

  // Results of the first Score call.
  const std::vector<ScoreResult>& scores() const { return scores_; }

  std::string name() const override { return backend_.name(); }
  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    const absl::Status status = backend_.Score(requests, stop, results);
    if (scores_.empty()) scores_ = results;
    return status;
  }
  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    return backend_.Select(requests, results);
  }
  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override {
    return backend_.Measure(requests, stop, results);
  }
  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override {
    return backend_.Diverge(request, result);
  }
  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override {
    return backend_.Move(requests, result);
  }
  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override {
    return backend_.Rotate(requests, result);
  }
  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override {
    return backend_.CopyRows(copies, result);
  }

 private:
  Backend& backend_;
  std::vector<ScoreResult> scores_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_SCORE_KEEPER_H_
