// A device's backend as its callers see it: one call over several layers.
#include "kvtriage/kernels/backend.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/core/error.h"
#include "tests/support/each_device.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

class BackendTest : public EachDevice {
 protected:
  ScoreProblem problem_{{}, 31};
  Backend* const backend_ = &backend(3);
};
KVTRIAGE_ON_EACH_DEVICE(BackendTest);

TEST_P(BackendTest, Names) {
  EXPECT_EQ(backend_->name(), on_cpu() ? "cpu" : "cuda:0");
  EXPECT_EQ(MakeCpuBackend(0)->name(), "cpu");
}

TEST_P(BackendTest, ScoresSelectsAndMeasuresALayer) {
  const ScoreRequest score = problem_.Request(AttentionSource::kQuery, {.scorer = Scorer::kDrop});
  std::vector<ScoreResult> scores;
  ASSERT_TRUE(backend_->Score({&score, 1}, nullptr, scores).ok());
  ASSERT_EQ(scores.size(), 1u);
  EXPECT_EQ(Difference(scores[0], PlainScore(score)), "");

  SelectRequest select{.rows = 64, .budget = 20};
  for (size_t head = 0; head < 2; ++head) {
    select.scores.emplace_back(scores[0].scores.data() + head * 64, 64);
    select.protect.emplace_back();
  }
  std::vector<SelectResult> selected;
  ASSERT_TRUE(backend_->Select({&select, 1}, selected).ok());
  for (size_t head = 0; head < 2; ++head) {
    EXPECT_EQ(selected[0].kept[head], TopK(select.scores[head], 20));
  }

  const QualityRequest quality{
      score.layer, score.input, {selected[0].kept.begin(), selected[0].kept.end()}};
  std::vector<QualityResult> measured;
  ASSERT_TRUE(backend_->Measure({&quality, 1}, nullptr, measured).ok());
  // The oracle's own choice is no worse than the 20 oldest rows.
  std::vector<int32_t> oldest(20);
  for (int32_t p = 0; p < 20; ++p) oldest[static_cast<size_t>(p)] = p;
  const QualityRequest other{score.layer, score.input, {oldest, oldest}};
  std::vector<QualityResult> worse;
  ASSERT_TRUE(backend_->Measure({&other, 1}, nullptr, worse).ok());
  EXPECT_LT(measured[0].heads[0].error(), worse[0].heads[0].error());
}

// The CPU asks before every layer; a device, which takes all layers at once, at least once.
TEST_P(BackendTest, AStopEndsACall) {
  const ScoreRequest score = problem_.Request(AttentionSource::kQuery, {});
  const QualityRequest quality{score.layer, score.input, {{}, {}}};
  const std::vector<ScoreRequest> scores(3, score);
  const std::vector<QualityRequest> qualities(3, quality);
  std::vector<ScoreResult> scored;
  std::vector<QualityResult> measured;
  const auto expect_stop = [&](auto call) {
    const int enough = on_cpu() ? 3 : 1;
    for (const int allowed : {0, 1, 2, 100}) {
      int asked = 0;
      const StopCheck stop = [&]() -> absl::Status {
        return asked++ < allowed ? absl::OkStatus() : absl::CancelledError("enough");
      };
      const absl::StatusCode code = call(stop);
      if (allowed < enough) {
        EXPECT_EQ(code, absl::StatusCode::kCancelled);
      } else if (allowed == 100) {
        EXPECT_EQ(code, absl::StatusCode::kOk);
      }
      if (on_cpu()) {
        EXPECT_EQ(asked, std::min(allowed + 1, 3));
      }
    }
  };
  expect_stop([&](const StopCheck& stop) { return backend_->Score(scores, stop, scored).code(); });
  expect_stop(
      [&](const StopCheck& stop) { return backend_->Measure(qualities, stop, measured).code(); });
}

TEST_P(BackendTest, SaysWhichHeadHasNoUsableRow) {
  for (size_t i = 2 * 16 * 16; i < problem_.q().size(); ++i) problem_.q()[i] = std::nan("");
  const ScoreRequest score = problem_.Request(AttentionSource::kQuery, {});
  std::vector<ScoreResult> results;
  const absl::Status status = backend_->Score({&score, 1}, nullptr, results);
  const auto info = GetErrorInfo(status);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, ErrorReason::kNoUsableRow);
  EXPECT_EQ(info->index, 1u);
}

TEST_P(BackendTest, DivergesAndMoves) {
  const int32_t table[] = {0};
  std::vector<float> fresh = {1, 2, 3, 4}, cached = {1, 0, 3, 1};
  ViewLayout layout{.block_stride = 16,
                    .head_stride = 16,
                    .slot_stride = 4,
                    .elem_stride = 4,
                    .num_blocks = 1,
                    .block_slots = 4,
                    .heads = 1,
                    .row_elems = 1};
  const SequenceRows rows{table, 0, 4};
  const KvView fresh_view{reinterpret_cast<std::byte*>(fresh.data()), layout};
  const KvView cached_view{reinterpret_cast<std::byte*>(cached.data()), layout};
  const std::vector<int32_t> candidates = {0, 1, 3};
  DivergenceResult divergence;
  ASSERT_TRUE(
      backend_->Diverge({{fresh_view, rows}, {cached_view, rows}, candidates}, divergence).ok());
  EXPECT_EQ(divergence.divergence, (std::vector<float>{0, 4, 9}));

  const std::vector<int32_t> kept = {0, 2, 3};
  MoveRequest move{
      .from = fresh_view, .from_rows = rows, .to = fresh_view, .to_rows = {table, 0, 3}};
  move.kept.emplace_back(kept);
  MoveResult moved;
  ASSERT_TRUE(backend_->Move({&move, 1}, moved).ok());
  EXPECT_EQ(fresh, (std::vector<float>{1, 3, 4, 4}));
  EXPECT_EQ(moved.bytes_written, 8u);
}

}  // namespace
}  // namespace kvtriage
