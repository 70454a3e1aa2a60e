#include "kernels/cpu/score_lagkv.h"

#include <algorithm>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/lag_ranks.h"
#include "kernels/cpu/lag_panels.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMarkTokens = 4096;  // rows of one piece of the first pass

// Work memory of one worker.
struct PartitionScratch {
  LagScratch lag;
  std::vector<float> low, high, of_keys, of_values;
  LagRankScratch ranks;
};

class LagScorer {
 public:
  LagScorer(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result)
      : layer_(request.layer),
        team_(team),
        result_(result),
        tokens_(layer_.sequence.rows),
        heads_(layer_.k.layout.heads),
        sinks_(request.sinks),
        lag_(request.spec.lag),
        bad_(heads_ * tokens_),
        scratch_(static_cast<size_t>(team.threads())) {
    result.lists = static_cast<uint32_t>(heads_);
    result.usable_rows.assign(heads_, 0);
  }

  void Run() {
    MarkBad();
    result_.scores = bad_;  // 0, or NaN for bad rows
    const uint64_t measured = MeasuredPartitions(tokens_, sinks_, lag_);
    for (uint64_t head = 0; head < heads_; ++head) {
      AddLagDefaults(measured, {result_.scores.data() + head * tokens_, tokens_});
    }
    team_.Run(heads_ * measured, [&](size_t item, int worker) {
      RankPartition(static_cast<uint32_t>(item / measured), item % measured,
                    scratch_[static_cast<size_t>(worker)]);
    });
  }

 private:
  void MarkBad() {
    const uint64_t ranges = CeilDiv(tokens_, kMarkTokens);
    team_.Run(heads_ * ranges, [&](size_t item, int worker) {
      const auto head = static_cast<uint32_t>(item / ranges);
      const uint64_t begin = item % ranges * kMarkTokens;
      const uint64_t end = std::min(tokens_, begin + kMarkTokens);
      for (const KvView* view : {&layer_.k, &layer_.v}) {
        MarkBadRows({*view, layer_.sequence, head, begin, end},
                    scratch_[static_cast<size_t>(worker)].lag, BadOf(head, begin));
      }
    });
  }

  float* BadOf(uint32_t head, uint64_t row) { return bad_.data() + head * tokens_ + row; }

  void RankPartition(uint32_t head, uint64_t partition, PartitionScratch& scratch) {
    const uint64_t begin = sinks_ + partition * lag_;
    Measure(layer_.k, head, begin, scratch, scratch.of_keys);
    Measure(layer_.v, head, begin, scratch, scratch.of_values);
    RankLagPartition(scratch.of_keys, scratch.of_values, {BadOf(head, begin), lag_}, scratch.ranks,
                     {result_.scores.data() + head * tokens_ + begin, lag_});
  }

  // Deviations of the partition at `begin`, measured with the one behind it.
  void Measure(const KvView& view, uint32_t head, uint64_t begin, PartitionScratch& scratch,
               std::vector<float>& deviations) {
    const uint64_t next = begin + lag_, end = next + lag_;
    scratch.low.resize(view.layout.row_elems);
    scratch.high.resize(view.layout.row_elems);
    deviations.resize(lag_);
    FindExtremes({view, layer_.sequence, head, next, end}, BadOf(head, next), scratch.lag,
                 scratch.low.data(), scratch.high.data());
    Deviations({view, layer_.sequence, head, begin, next}, scratch.low.data(), scratch.high.data(),
               scratch.lag, deviations.data());
  }

  const LayerRows& layer_;
  ThreadTeam& team_;
  ScoreResult& result_;
  const uint64_t tokens_, heads_, sinks_, lag_;
  std::vector<float> bad_;  // [heads, tokens]: 0, or NaN
  std::vector<PartitionScratch> scratch_;
};

}  // namespace

void ScoreLagKv(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  LagScorer(request, team, result).Run();
}

}  // namespace kvtriage
