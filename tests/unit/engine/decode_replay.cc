#include "tests/unit/engine/decode_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/plain_score.h"

namespace kvtriage {
namespace {

constexpr double kClose = 1e-4;  // relative to the largest score

// AVG or MAX over an odd kernel, as the policy says, up to `end`.
std::vector<double> Pooled(const std::vector<double>& raw, const ScoreSpec& spec, uint32_t end) {
  if (spec.pool == Pool::kNone) return raw;
  std::vector<double> out = raw;
  const auto half = static_cast<int64_t>(spec.pool_kernel / 2);
  for (int64_t p = 0; p < static_cast<int64_t>(end); ++p) {
    double sum = 0, most = -INFINITY;
    for (int64_t r = p - half; r <= p + half; ++r) {
      if (r < 0 || r >= static_cast<int64_t>(end)) continue;
      sum += raw[static_cast<size_t>(r)];
      most = std::max(most, raw[static_cast<size_t>(r)]);
    }
    out[static_cast<size_t>(p)] = spec.pool == Pool::kAvg ? sum / spec.pool_kernel : most;
  }
  return out;
}

}  // namespace

std::vector<DecodeReplay::Sums>& DecodeReplay::SumsOf(uint64_t id) {
  std::vector<Sums>& sums = sums_[id];
  if (!sums.empty()) return sums;
  for (const uint32_t heads : worker_.shape().heads) sums.push_back(Sums(heads));
  return sums;
}

void DecodeReplay::Add(uint64_t id, uint32_t first, uint32_t end) {
  std::vector<Sums>& sums = SumsOf(id);
  const uint32_t group = worker_.shape().group;
  for (uint32_t row = first; row < end; ++row) {
    for (uint32_t l = 0; l < sums.size(); ++l) {
      const uint32_t heads = worker_.shape().heads[l];
      // The newest rows stand in the same place in every head.
      const int32_t token = worker_.Tokens(id, l, 0)[row];
      const std::vector<float> query = worker_.Query(id, l, token);
      ScoreRequest request{.layer = worker_.View(id, l, row + 1)};
      request.input.source = AttentionSource::kQuery;
      request.input.scale = 1.0f / std::sqrt(static_cast<float>(worker_.shape().dk));
      request.input.q = {reinterpret_cast<const std::byte*>(query.data()),
                         DType::kF32,
                         1,
                         heads * group,
                         worker_.shape().dk,
                         query.size() * sizeof(float),
                         worker_.shape().dk * sizeof(float),
                         sizeof(float)};
      request.input.rotation.rope = worker_.rope();
      request.input.rotation.first = token;
      request.window = 1;
      request.spec.scorer = policy_.score.scorer;
      request.spec.reduce = policy_.score.reduce;
      const PlainScores scores = PlainScore(request);
      for (uint32_t h = 0; h < heads; ++h) {
        std::vector<double>& sum = sums[l][h];
        for (double& x : sum) x *= policy_.window.decay;
        sum.resize(row + 1);
        for (uint32_t p = 0; p <= row; ++p) {
          const size_t at = size_t{h} * (row + 1) + p;
          sum[p] += policy_.score.scorer == Scorer::kVatp ? scores.mass[at] : scores.scores[at];
        }
      }
    }
  }
}

std::vector<double> DecodeReplay::ScoresOf(uint64_t id, uint32_t layer, uint32_t head,
                                           uint32_t rows) {
  std::vector<double> scores = SumsOf(id)[layer][head];
  scores.resize(rows);
  if (policy_.score.scorer == Scorer::kVatp) {
    // The rows may have moved already.
    for (uint32_t p = 0; p < rows; ++p) {
      double norm = 0;
      for (const float v : worker_.ValueOf(id, layer, head, worker_.Tokens(id, layer, head)[p])) {
        norm += std::abs(v);
      }
      scores[p] *= norm;
    }
  }
  return scores;
}

uint32_t DecodeReplay::CheckList(const std::vector<double>& scores, uint32_t rows,
                                 const std::vector<int32_t>& kept) const {
  const uint32_t budget = std::min(rows, *policy_.budget.kept_tokens);
  const uint32_t recent = RecentOf(rows);
  EXPECT_EQ(kept.size(), budget);
  const std::set<int32_t> set(kept.begin(), kept.end());
  const auto in = [&set](uint32_t p) { return set.contains(static_cast<int32_t>(p)); };
  const auto guarded = [&](uint32_t p) { return p < policy_.protect.sinks || p + recent >= rows; };
  std::vector<double> candidates;
  for (uint32_t p = 0; p < rows; ++p) {
    if (!guarded(p)) candidates.push_back(scores[p]);
    EXPECT_TRUE(in(p) || !guarded(p)) << "protected row " << p;
  }
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  const size_t slots = budget - (rows - candidates.size());
  if (slots == 0 || slots >= candidates.size()) return 0;
  const double last = candidates[slots - 1], next = candidates[slots];
  const double tolerance = kClose * std::abs(candidates.front());
  for (uint32_t p = 0; p < rows; ++p) {
    if (guarded(p)) continue;
    const bool above = scores[p] > next + tolerance, below = scores[p] < last - tolerance;
    EXPECT_TRUE(in(p) || !above) << "row " << p << ": " << scores[p] << " above " << next;
    EXPECT_TRUE(!in(p) || !below) << "row " << p << ": " << scores[p] << " below " << last;
  }
  return last - next <= tolerance ? 1 : 0;
}

uint32_t DecodeReplay::RecentOf(uint32_t rows) const {
  const uint32_t budget = std::min(rows, *policy_.budget.kept_tokens);
  const auto share = static_cast<uint32_t>(std::trunc(policy_.protect.recent_share * budget));
  return std::min(rows, std::max(policy_.protect.recent, share));
}

uint32_t DecodeReplay::Check(uint64_t id, uint32_t rows, const TriageResult& result) {
  uint32_t close = 0;
  std::vector<Sums>& sums = SumsOf(id);
  for (uint32_t l = 0; l < sums.size(); ++l) {
    std::vector<std::vector<double>> scores;
    for (uint32_t h = 0; h < sums[l].size(); ++h) {
      scores.push_back(Pooled(ScoresOf(id, l, h, rows), policy_.score, rows - RecentOf(rows)));
      if (h == 0 || policy_.granularity == Granularity::kPerHead) continue;
      for (uint32_t p = 0; p < rows; ++p) scores[0][p] += scores[h][p];
    }
    for (uint32_t h = 0; h < sums[l].size(); ++h) {
      SCOPED_TRACE("sequence " + std::to_string(id) + " layer " + std::to_string(l) + " head " +
                   std::to_string(h));
      const std::vector<int32_t>& kept = result.ListOf(l, h);
      const bool shared = policy_.granularity != Granularity::kPerHead;
      close += CheckList(scores[shared ? 0 : h], rows, kept);
    }
  }
  Follow(id, rows, result);
  return close;
}

void DecodeReplay::Follow(uint64_t id, uint32_t rows, const TriageResult& result) {
  std::vector<Sums>& sums = SumsOf(id);
  for (uint32_t l = 0; l < sums.size(); ++l) {
    for (uint32_t h = 0; h < sums[l].size(); ++h) {
      sums[l][h].resize(rows);
      std::vector<double> gathered;
      for (const int32_t row : result.ListOf(l, h)) {
        gathered.push_back(sums[l][h][static_cast<size_t>(row)]);
      }
      sums[l][h] = gathered;
    }
  }
}

}  // namespace kvtriage
