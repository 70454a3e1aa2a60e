#include "kernels/cpu/score_keys.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/cpu/key_panels.h"

namespace kvtriage {
namespace {

// Rows of one piece of work. Fixed, so that sums over pieces do not depend on the threads, and a
// multiple of every panel, so that a row's lane does not depend on its piece.
constexpr uint64_t kRangeTokens = 48 * 64;

class KeyScorer {
 public:
  KeyScorer(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result)
      : layer_(request.layer),
        team_(team),
        result_(result),
        tokens_(layer_.sequence.rows),
        heads_(layer_.k.layout.heads),
        elems_(layer_.k.layout.row_elems),
        ranges_(CeilDiv(tokens_, kRangeTokens)),
        scratch_(static_cast<size_t>(team.threads())) {
    result.lists = static_cast<uint32_t>(heads_);
    result.scores.resize(heads_ * tokens_);
    result.usable_rows.assign(heads_, 0);
  }

  void Norms() {
    team_.Run(heads_ * ranges_, [&](size_t item, int worker) {
      const KeyRange range = RangeOf(item);
      float* const scores = ScoresOf(range);
      KeyNorms(range, Scratch(worker), scores);
      for (uint64_t t = 0; t < range.end - range.begin; ++t) scores[t] = -scores[t];
    });
  }

  void Distances() {
    std::vector<double> sums(heads_ * ranges_ * elems_);
    std::vector<uint64_t> good(heads_ * ranges_);
    team_.Run(heads_ * ranges_, [&](size_t item, int worker) {
      good[item] = SumUnitKeys(RangeOf(item), Scratch(worker), sums.data() + item * elems_);
    });
    std::vector<float> means(heads_ * elems_), norms(heads_);
    for (uint64_t head = 0; head < heads_; ++head) {
      norms[head] = Average(head, sums, good, means.data() + head * elems_);
    }
    team_.Run(heads_ * ranges_, [&](size_t item, int worker) {
      const KeyRange range = RangeOf(item);
      KeyDistances(range, means.data() + range.kv_head * elems_, norms[range.kv_head],
                   Scratch(worker), ScoresOf(range));
    });
  }

 private:
  // The mean of a head's unit keys, and its norm.
  float Average(uint64_t head, const std::vector<double>& sums, const std::vector<uint64_t>& good,
                float* mean) const {
    uint64_t rows = 0;
    for (uint64_t r = 0; r < ranges_; ++r) rows += good[head * ranges_ + r];
    double square = 0;
    for (uint64_t c = 0; c < elems_; ++c) {
      double sum = 0;
      for (uint64_t r = 0; r < ranges_; ++r) sum += sums[(head * ranges_ + r) * elems_ + c];
      sum /= static_cast<double>(std::max<uint64_t>(rows, 1));
      mean[c] = static_cast<float>(sum);
      square += sum * sum;
    }
    return static_cast<float>(std::sqrt(square));
  }

  KeyRange RangeOf(size_t item) const {
    const uint64_t begin = item % ranges_ * kRangeTokens;
    return {layer_, static_cast<uint32_t>(item / ranges_), begin,
            std::min(tokens_, begin + kRangeTokens)};
  }
  float* ScoresOf(const KeyRange& range) {
    return result_.scores.data() + range.kv_head * tokens_ + range.begin;
  }
  KeyScratch& Scratch(int worker) { return scratch_[static_cast<size_t>(worker)]; }

  const LayerRows& layer_;
  ThreadTeam& team_;
  ScoreResult& result_;
  const uint64_t tokens_, heads_, elems_, ranges_;
  std::vector<KeyScratch> scratch_;
};

}  // namespace

void ScoreKeys(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  KeyScorer scorer(request, team, result);
  if (request.spec.scorer == Scorer::kKeyNorm) {
    scorer.Norms();
  } else {
    scorer.Distances();
  }
}

}  // namespace kvtriage
