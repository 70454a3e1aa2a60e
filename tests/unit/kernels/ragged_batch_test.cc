// A batch of sequences of different lengths, padded on the left, against each one alone: not a bit
// may differ, whatever the model does to its logits and however its rows are stored.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kvtriage/kernels/backend.h"
#include "tests/unit/kernels/score_problem.h"

namespace kvtriage {
namespace {

constexpr uint32_t kLengths[] = {5, 300, 64};
constexpr CacheLayout kAlone = {"alone", 0, false, 0};
// Left padding of up to a block, in front of a first block that is not full.
constexpr CacheLayout kPadded[] = {{"padded", 16, false, 11}, {"transposed", 32, true, 7}};

struct Model {
  const char* name;
  float softcap;
  bool slopes, sinks;
  uint32_t sliding_window;
  DType type;
  CacheScales scales;
};

const Model kModels[] = {
    {"plain", 0, false, false, 0, DType::kBF16, {}},
    {"softcap", 5, false, false, 0, DType::kF32, {}},
    {"ALiBi and learned sinks", 0, true, true, 0, DType::kF16, {}},
    {"sliding window", 0, false, true, 40, DType::kF32, {}},
    {"fp8", 0, false, false, 0, DType::kF8E4M3, {0.5f, 0.25f, true}},
};

std::unique_ptr<ScoreProblem> MakeProblem(const Model& model, uint32_t length) {
  const ProblemShape shape{4, 2, length, std::min(length, 20u), 24, 40};
  auto problem = std::make_unique<ScoreProblem>(shape, 9000 + length);
  problem->set_softcap(model.softcap);
  if (model.slopes) problem->set_alibi_slopes({0.5, 0.25, 0.125, 0.0625});
  if (model.sinks) problem->set_sink_logits({0.7, -1, 3, 0});
  problem->set_sliding_window(model.sliding_window);
  return problem;
}

class RaggedBatch : public testing::TestWithParam<Model> {
 protected:
  // Scores every sequence in one call.
  std::vector<ScoreResult> Score(std::vector<std::unique_ptr<ScoreProblem>>& problems,
                                 const CacheLayout& layout, AttentionSource source, Scorer scorer) {
    std::vector<ScoreRequest> requests;
    for (const auto& problem : problems) {
      problem->Place(layout, GetParam().type, GetParam().scales);
      requests.push_back(problem->Request(source, {.scorer = scorer}));
    }
    std::vector<ScoreResult> results;
    const absl::Status status = backend_->Score(requests, {}, results);
    EXPECT_TRUE(status.ok()) << status;
    return results;
  }

  std::unique_ptr<Backend> backend_ = MakeCpuBackend(2);
};

TEST_P(RaggedBatch, IsItsSequencesAlone) {
  for (const Scorer scorer : {Scorer::kAttention, Scorer::kObcJoint, Scorer::kDrop}) {
    for (const AttentionSource source :
         {AttentionSource::kQuery, AttentionSource::kQueryOutput, AttentionSource::kReady}) {
      for (const CacheLayout& layout : kPadded) {
        SCOPED_TRACE("scorer " + std::to_string(static_cast<int>(scorer)) + ", source " +
                     std::to_string(static_cast<int>(source)) + ", " + layout.name);
        std::vector<std::unique_ptr<ScoreProblem>> batch;
        for (const uint32_t length : kLengths) batch.push_back(MakeProblem(GetParam(), length));
        const std::vector<ScoreResult> together = Score(batch, layout, source, scorer);
        ASSERT_EQ(together.size(), std::size(kLengths));
        for (size_t i = 0; i < std::size(kLengths); ++i) {
          std::vector<std::unique_ptr<ScoreProblem>> one;
          one.push_back(MakeProblem(GetParam(), kLengths[i]));
          const std::vector<ScoreResult> alone = Score(one, kAlone, source, scorer);
          EXPECT_TRUE(SameBits(together[i].scores, alone[0].scores)) << kLengths[i];
          EXPECT_TRUE(SameBits(together[i].mass, alone[0].mass)) << kLengths[i];
          EXPECT_EQ(together[i].usable_rows, alone[0].usable_rows);
          EXPECT_EQ(together[i].nonfinite_tokens, 0u);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, RaggedBatch, testing::ValuesIn(kModels),
                         [](const testing::TestParamInfo<Model>& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace kvtriage
