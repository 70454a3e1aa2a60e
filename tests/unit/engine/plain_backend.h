// A backend of plain loops with places to hold it up or make it fail. Scores recency, random and
// column sums; measures nothing.
#ifndef KVTRIAGE_TESTS_UNIT_ENGINE_PLAIN_BACKEND_H_
#define KVTRIAGE_TESTS_UNIT_ENGINE_PLAIN_BACKEND_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvtriage/kernels/backend.h"

namespace kvtriage {

// Set before a call is made, read on the lane.
struct BackendHooks {
  std::function<void()> on_score;        // once per call of Score
  std::function<void()> on_move;         // once per call of Move, before the first byte
  std::atomic<int> fail_move{-1};        // the call of Move that fails half-way, counted from 0
  std::atomic<int> moves{0};             // calls of Move so far
  std::atomic<bool> fail_writes{false};  // Rotate and CopyRows fail, half-way where there are two
  std::atomic<int> scores{0};
};

class PlainBackend : public Backend {
 public:
  explicit PlainBackend(std::shared_ptr<BackendHooks> hooks) : hooks_(std::move(hooks)) {}

  std::string name() const override { return "plain"; }
  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override;
  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override;
  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override;
  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override;
  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override;
  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override;
  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override;

 private:
  std::shared_ptr<BackendHooks> hooks_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_ENGINE_PLAIN_BACKEND_H_
