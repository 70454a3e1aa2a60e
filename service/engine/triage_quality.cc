#include "service/engine/triage_quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/core/score_rules.h"
#include "kernels/core/status_macros.h"
#include "service/engine/triage_score.h"

namespace kvtriage {
namespace {

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Kept share of `mass`. With `votes` rows known to add up to 1 each they are the whole, else the
// sum is.
double KeptShare(std::span<const float> mass, std::span<const int32_t> kept, uint32_t votes) {
  const auto finite = [](float m) { return std::isfinite(m) ? double{m} : 0.0; };
  double inside = 0, whole = votes;
  for (const int32_t p : kept) inside += finite(mass[p]);
  if (votes == 0) {
    for (const float m : mass) whole += finite(m);
  }
  return whole > 0 ? std::min(1.0, inside / whole) : 1.0;  // nothing attended, nothing lost
}

bool HasRows(const TriageLayer& layer) {
  return SuppliedRows(layer.input) > 0 && layer.rows.v.base != nullptr;
}

bool CanDelete(const TriageLayer& layer) {
  return HasRows(layer) && (layer.input.source != AttentionSource::kReady || layer.input.o);
}

void FillMass(const QualityResult& measured, LayerQuality& quality) {
  for (const HeadQuality& head : measured.heads) {
    quality.head_mass_mean.push_back(head.mass_mean);
    quality.head_mass_low.push_back(head.mass_low);
  }
}

void FillError(const QualityResult& measured, LayerQuality& quality) {
  HeadQuality pooled;
  for (const HeadQuality& head : measured.heads) {
    quality.head_error.push_back(head.error());
    quality.head_error_high.push_back(head.error_high);
    pooled.error_squares += head.error_squares;
    pooled.output_squares += head.output_squares;
  }
  quality.error = pooled.error();
  quality.error_p95 = Percentile(quality.head_error, 0.95);
  quality.has_error = true;
}

void SummariseMass(LayerQuality& quality) {
  quality.mass_mean = Mean(quality.head_mass_mean);
  quality.mass_p5 = Percentile(quality.head_mass_mean, 0.05);
  quality.has_mass = true;
}

std::vector<std::span<const int32_t>> ListsOfLayer(const TriageSequence& sequence, uint32_t layer,
                                                   const TriageResult& result) {
  std::vector<std::span<const int32_t>> lists;
  for (uint32_t h = 0; h < KvHeads(sequence.layers[layer]); ++h)
    lists.push_back(result.ListOf(layer, h));
  return lists;
}

// Measures mass and error; answers the layers where every KV head had a usable row.
absl::Status MeasureRows(Backend& backend, const TriageSequence& sequence,
                         const MeasureSpec& measure, const StopCheck& stop, TriageResult& result,
                         std::vector<uint32_t>& measured) {
  std::vector<uint32_t> layers;
  std::vector<QualityRequest> requests;
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    if (!HasRows(sequence.layers[l])) continue;
    layers.push_back(l);
    requests.push_back(
        {sequence.layers[l].rows, sequence.layers[l].input, ListsOfLayer(sequence, l, result)});
  }
  if (requests.empty()) return absl::OkStatus();
  std::vector<QualityResult> answers;
  KVTRIAGE_RETURN_IF_ERROR(backend.Measure(requests, stop, answers));
  for (size_t i = 0; i < answers.size(); ++i) {
    result.layers[layers[i]].lse_suspect = answers[i].lse_suspect;
    const auto unusable = [](const HeadQuality& head) { return head.usable_rows == 0; };
    if (std::any_of(answers[i].heads.begin(), answers[i].heads.end(), unusable)) continue;
    LayerQuality& quality = result.quality[layers[i]];
    if (measure.retained_mass) {
      FillMass(answers[i], quality);
      SummariseMass(quality);
    }
    if (measure.output_error) FillError(answers[i], quality);
    measured.push_back(layers[i]);
  }
  return absl::OkStatus();
}

// Column sums know the mean mass of their rows and nothing of the single row.
void MassFromSums(const TriageSequence& sequence, TriageResult& result) {
  size_t next = 0;
  for (uint32_t l = 0; l < sequence.layers.size(); ++l) {
    const uint32_t heads = KvHeads(sequence.layers[l]);
    const bool known = result.noop || !result.window_mass.empty();
    if (sequence.layers[l].input.source == AttentionSource::kColumnSums && known) {
      LayerQuality& quality = result.quality[l];
      for (uint32_t h = 0; h < heads; ++h) {
        quality.head_mass_mean.push_back(result.noop ? 1.0 : result.window_mass[next + h]);
      }
      SummariseMass(quality);
    }
    next += heads;
  }
}

// The rows of `list` that are not in `protect`; both ascend.
std::vector<int32_t> Chosen(std::span<const int32_t> list, std::span<const int32_t> protect) {
  std::vector<int32_t> chosen;
  std::set_difference(list.begin(), list.end(), protect.begin(), protect.end(),
                      std::back_inserter(chosen));
  return chosen;
}

// Scores `layers` by exact deletion over all rows of their inputs and compares.
absl::Status CompareWithOracle(Backend& backend, const TriageSequence& sequence,
                               const std::vector<uint32_t>& layers, const ScoredSequence& scored,
                               const StopCheck& stop, TriageResult& result) {
  std::vector<ScoreRequest> requests;
  for (const uint32_t l : layers) {
    const TriageLayer& layer = sequence.layers[l];
    requests.push_back({.layer = layer.rows,
                        .input = layer.input,
                        .window = SuppliedRows(layer.input),
                        .spec = {.scorer = Scorer::kDrop}});
  }
  if (requests.empty()) return absl::OkStatus();
  std::vector<ScoreResult> oracle;
  KVTRIAGE_RETURN_IF_ERROR(backend.Score(requests, stop, oracle));
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerQuality& quality = result.quality[layers[i]];
    for (uint32_t h = 0; h < oracle[i].lists; ++h) {
      const uint32_t list = scored.lists.Of(layers[i], h);
      std::span<const int32_t> kept_anyway;
      if (!scored.plan.keeps_all) kept_anyway = scored.plan.protect.Of(list).rows;
      std::vector<int32_t> candidates = CandidateRows(sequence.rows, kept_anyway);
      std::erase_if(candidates, [first = static_cast<int32_t>(scored.plan.first[list])](
                                    int32_t row) { return row < first; });
      const auto scores = std::span<const float>(oracle[i].scores)
                              .subspan(uint64_t{h} * sequence.rows, sequence.rows);
      quality.head_recall.push_back(
          OracleRecall(scores, candidates, Chosen(result.ListOf(layers[i], h), kept_anyway)));
    }
    quality.recall_mean = Mean(quality.head_recall);
    quality.has_recall = true;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<double> WindowMass(const TriageSequence& sequence,
                               const std::vector<ScoreResult>& scores, const TriageResult& result) {
  std::vector<double> shares;
  for (uint32_t l = 0; l < scores.size(); ++l) {
    if (scores[l].mass.empty()) return {};
    for (uint32_t h = 0; h < KvHeads(sequence.layers[l]); ++h) {
      const uint32_t list = std::min(h, scores[l].lists - 1);
      const auto mass = std::span<const float>(scores[l].mass)
                            .subspan(uint64_t{list} * sequence.rows, sequence.rows);
      const std::vector<int32_t>& kept = result.ListOf(l, h);
      // Where nothing is dropped nothing is lost, whatever a learned sink takes.
      shares.push_back(
          kept.size() == sequence.rows ? 1.0 : KeptShare(mass, kept, scores[l].usable_rows[list]));
    }
  }
  return shares;
}

absl::Status MeasureLayers(Backend& backend, const TriageSequence& sequence,
                           const MeasureSpec& measure, const ScoredSequence& scored,
                           const StopCheck& stop, TriageResult& result) {
  result.quality.resize(sequence.layers.size());
  std::vector<uint32_t> measured;
  KVTRIAGE_RETURN_IF_ERROR(MeasureRows(backend, sequence, measure, stop, result, measured));
  if (measure.retained_mass) MassFromSums(sequence, result);
  if (!measure.oracle_recall) return absl::OkStatus();
  std::erase_if(measured, [&](uint32_t l) { return !CanDelete(sequence.layers[l]); });
  return CompareWithOracle(backend, sequence, measured, scored, stop, result);
}

}  // namespace kvtriage
