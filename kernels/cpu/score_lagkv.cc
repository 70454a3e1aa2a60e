#include "kernels/cpu/score_lagkv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/cpu/lag_panels.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMarkTokens = 4096;  // rows of one piece of the first pass

// Work memory of one worker.
struct PartitionScratch {
  LagScratch lag;
  std::vector<float> low, high, deviations;
  std::vector<double> importance;
  std::vector<uint32_t> order;
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
    if (tokens_ < sinks_ + 2 * lag_) {
      for (uint64_t i = 0; i < result_.scores.size(); ++i) {
        result_.scores[i] += static_cast<float>(i % tokens_);
      }
      return;
    }
    for (float& score : result_.scores) score += 1.0f;
    const uint64_t measured = (tokens_ - sinks_) / lag_ - 1;
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
    scratch.importance.assign(lag_, 0.0);
    AddSpread(layer_.k, head, begin, scratch);
    AddSpread(layer_.v, head, begin, scratch);
    const float* const bad = BadOf(head, begin);
    std::vector<uint32_t>& order = scratch.order;
    order.clear();
    for (uint32_t i = 0; i < lag_; ++i) {
      if (bad[i] == 0.0f) order.push_back(i);
    }
    // Worst first; of equal rows the later one is worse.
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const double left = scratch.importance[a], right = scratch.importance[b];
      return left != right ? left < right : a > b;
    });
    float* const scores = result_.scores.data() + head * tokens_ + begin;
    for (size_t rank = 0; rank < order.size(); ++rank) {
      scores[order[rank]] = static_cast<float>(rank) / static_cast<float>(lag_);
    }
  }

  // Adds the softmax of the deviations of the partition at `begin`, measured with the one behind
  // it.
  void AddSpread(const KvView& view, uint32_t head, uint64_t begin, PartitionScratch& scratch) {
    const uint64_t next = begin + lag_, end = next + lag_;
    scratch.low.resize(view.layout.row_elems);
    scratch.high.resize(view.layout.row_elems);
    scratch.deviations.resize(lag_);
    FindExtremes({view, layer_.sequence, head, next, end}, BadOf(head, next), scratch.lag,
                 scratch.low.data(), scratch.high.data());
    Deviations({view, layer_.sequence, head, begin, next}, scratch.low.data(), scratch.high.data(),
               scratch.lag, scratch.deviations.data());
    const float* const bad = BadOf(head, begin);
    double top = 0;
    for (uint64_t i = 0; i < lag_; ++i) {
      float& deviation = scratch.deviations[i];
      // Numbers beyond float32 count as its largest, so that the order stays total.
      if (!(deviation <= std::numeric_limits<float>::max())) {
        deviation = std::numeric_limits<float>::max();
      }
      if (bad[i] == 0.0f) top = std::max(top, double{deviation});
    }
    double sum = 0;
    for (uint64_t i = 0; i < lag_; ++i) {
      if (bad[i] == 0.0f) sum += std::exp(scratch.deviations[i] - top);
    }
    for (uint64_t i = 0; i < lag_; ++i) {
      if (bad[i] == 0.0f) scratch.importance[i] += std::exp(scratch.deviations[i] - top) / sum;
    }
  }

  const LayerRows& layer_;
  ThreadTeam& team_;
  ScoreResult& result_;
  const uint64_t tokens_, heads_, sinks_, lag_;
  std::vector<float> bad_;  // [heads, tokens]: 0, or NaN
  std::vector<PartitionScratch> scratch_;
};

}  // namespace

uint32_t LagTail(uint32_t rows, uint32_t sinks, uint32_t lag) {
  if (rows < uint64_t{sinks} + 2 * uint64_t{lag}) return 0;
  return lag + (rows - sinks) % lag;
}

void ScoreLagKv(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  LagScorer(request, team, result).Run();
}

}  // namespace kvtriage
