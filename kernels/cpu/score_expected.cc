#include "kernels/cpu/score_expected.h"

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/core/average_turn.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/dtype.h"
#include "kernels/core/expected_rules.h"
#include "kernels/core/status_macros.h"
#include "kernels/cpu/expected_logits.h"
#include "kernels/cpu/query_moments.h"
#include "kernels/cpu/row_blocks.h"

namespace kvtriage {
namespace {

constexpr uint64_t kRangeTokens = 1024;  // rows of one piece of work

// The numbers that the caller gives instead of queries.
QueryMoments GivenMoments(const AttentionInput& input, uint32_t head) {
  QueryMoments moments;
  const uint32_t size = input.query_mean.elems;
  for (uint32_t c = 0; c < size; ++c) {
    moments.mean.push_back(LoadElement(input.query_mean.At(0, head, c), input.query_mean.dtype));
  }
  for (uint32_t r = 0; r < size; ++r) {
    for (uint32_t c = 0; c < size; ++c) {
      moments.covariance.push_back(
          LoadElement(input.query_covariance.At(r, head, c), input.query_covariance.dtype));
    }
  }
  CountGivenMoments(moments);
  return moments;
}

class ExpectedScorer {
 public:
  ExpectedScorer(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result)
      : request_(request),
        team_(team),
        result_(result),
        tokens_(request.layer.sequence.rows),
        first_(std::min<uint64_t>(request.sinks, tokens_)),
        heads_(request.layer.k.layout.heads),
        group_(request.layer.q_heads / heads_) {
    result.lists = heads_;
    result.scores.assign(heads_ * tokens_, 0.0f);
    result.usable_rows.assign(heads_, 0);
  }

  absl::Status Run() {
    if (first_ < tokens_) FindQueries();
    KVTRIAGE_RETURN_IF_ERROR(CheckUsable(usable_, group_));
    scratch_.resize(static_cast<size_t>(team_.threads()));
    logits_.resize(group_ * tokens_);
    norms_.resize(tokens_);
    for (uint32_t head = 0; head < heads_; ++head) ScoreHead(head);
    return absl::OkStatus();
  }

 private:
  // What every query head will ask with, in the numbers the kernels need.
  void FindQueries() {
    const AverageTurn turn(request_.rope, request_.next_position, request_.spec.future);
    std::vector<MomentScratch> scratch(static_cast<size_t>(team_.threads()));
    std::vector<uint64_t> skipped(request_.layer.q_heads);
    queries_.resize(request_.layer.q_heads);
    usable_.resize(request_.layer.q_heads);
    team_.Run(queries_.size(), [&](size_t head, int worker) {
      const auto h = static_cast<uint32_t>(head);
      QueryMoments moments =
          request_.input.query_mean
              ? GivenMoments(request_.input, h)
              : FindQueryMoments(request_.input.q, h, first_, scratch[static_cast<size_t>(worker)]);
      skipped[head] = moments.skipped;
      usable_[head] = moments.rows > 0 ? 1 : 0;
      if (moments.rows > 0) queries_[head] = QueryOf(moments, turn);
    });
    for (const uint64_t rows : skipped) result_.skipped_rows += static_cast<uint32_t>(rows);
  }

  ExpectedQuery QueryOf(QueryMoments& moments, const AverageTurn& turn) const {
    const size_t size = moments.mean.size();
    const ExpectedForm form = FormOf(moments, turn, request_.input.scale);
    ExpectedQuery query{.linear = form.linear, .quadratic = std::vector<float>(size * size)};
    PackRowBlocks(form.quadratic.data(), size, size, size, ExpectedTileRows(),
                  query.quadratic.data());
    return query;
  }

  void ScoreHead(uint32_t head) {
    std::vector<const ExpectedQuery*> group;
    std::vector<uint32_t> members;  // of the group, usable
    for (uint32_t i = 0; i < group_ && !queries_.empty(); ++i) {
      if (usable_[head * group_ + i] == 0) continue;
      group.push_back(&queries_[head * group_ + i]);
      members.push_back(i);
    }
    // Sinks are read too: a bad one has no score.
    const uint64_t ranges = CeilDiv(tokens_, kRangeTokens);
    team_.Run(ranges, [&](size_t range, int worker) {
      const uint64_t begin = range * kRangeTokens, end = std::min(tokens_, begin + kRangeTokens);
      std::vector<float*> logits;
      for (const uint32_t i : members) logits.push_back(logits_.data() + i * tokens_ + begin);
      ExpectedLogits(request_.layer, head, group, begin, end, scratch_[static_cast<size_t>(worker)],
                     logits, norms_.data() + begin);
    });
    team_.Run(members.size(), [&](size_t i, int) {
      ExpectedSoftmax(norms_, first_, {logits_.data() + members[i] * tokens_, tokens_});
    });
    std::vector<std::span<const float>> weights;
    for (const uint32_t i : members) weights.emplace_back(logits_.data() + i * tokens_, tokens_);
    ExpectedScores(weights, norms_, first_, group_, request_.spec.epsilon,
                   {result_.scores.data() + head * tokens_, tokens_});
  }

  const ScoreRequest& request_;
  ThreadTeam& team_;
  ScoreResult& result_;
  const uint64_t tokens_, first_;  // first row behind the sinks
  const uint32_t heads_, group_;
  std::vector<ExpectedQuery> queries_;  // per query head
  std::vector<uint8_t> usable_;
  std::vector<float> logits_, norms_;  // of the KV head at work: [group][tokens], [tokens]
  std::vector<ExpectedScratch> scratch_;
};

}  // namespace

absl::Status ScoreExpected(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  return ExpectedScorer(request, team, result).Run();
}

}  // namespace kvtriage
