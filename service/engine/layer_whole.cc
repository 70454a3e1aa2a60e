#include "service/engine/layer_whole.h"

#include <algorithm>
#include <iterator>
#include <variant>

#include "kernels/core/checked_math.h"
#include "service/engine/compress_run.h"

namespace kvtriage {
namespace {

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// Behind what is there already: layers stand in their order.
void Append(const TriageResult& layer, uint32_t heads, bool has_mass, TriageResult& whole) {
  const auto lists = static_cast<uint32_t>(whole.kept.size());
  Append(layer.kept, whole.kept);
  Append(layer.recent, whole.recent);
  for (TriageLayerOutcome outcome : layer.layers) {
    outcome.first_list += lists;
    whole.layers.push_back(outcome);
  }
  Append(layer.quality, whole.quality);
  // A layer that drops nothing was not scored, and loses nothing.
  if (layer.window_mass.empty() && has_mass) {
    whole.window_mass.insert(whole.window_mass.end(), heads, 1.0);
  }
  Append(layer.window_mass, whole.window_mass);
}

void Append(const SequenceOutcome& layer, uint32_t heads, bool has_mass, SequenceOutcome& whole) {
  whole.kv_revision = std::max(whole.kv_revision, layer.kv_revision);
  whole.kept = std::max(whole.kept, layer.kept);
  whole.next_position = std::max(whole.next_position, layer.next_position);
  whole.rewritten_bitmap.resize(
      std::max(whole.rewritten_bitmap.size(), layer.rewritten_bitmap.size()));
  for (size_t i = 0; i < layer.rewritten_bitmap.size(); ++i) {
    whole.rewritten_bitmap[i] |= layer.rewritten_bitmap[i];
  }
  whole.triage.noop = whole.triage.noop && layer.triage.noop;
  Append(layer.triage, heads, has_mass, whole.triage);
}

// Leading entries of the table in use, as PlanWrites counts them.
uint64_t BlocksUsed(const CompressSpec& spec, const CompressPlan& plan, size_t sequence,
                    const SequenceOutcome& whole) {
  if (spec.act.kind == ActKind::kSelectOnly || whole.triage.noop) {
    return plan.sequences[sequence].entries;
  }
  const PlanCache& target = spec.act.kind == ActKind::kCopy ? plan.destination : plan.cache;
  return target.EntriesFor(spec.sequences[sequence].first_slot + whole.kept);
}

}  // namespace

Answer WholeAnswer(const CompressSpec& spec, const LayerProgress& progress) {
  Answer answer;
  auto& whole = answer.body.emplace<CompressAnswer>();
  FillHead(spec, progress.plan, whole);
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    SequenceOutcome outcome;
    outcome.sequence_id = spec.sequences[i].sequence_id;
    outcome.logical_len = spec.sequences[i].logical_len;
    outcome.physical_len = spec.sequences[i].physical_len;
    outcome.triage.noop = true;
    const bool has_mass =
        std::any_of(progress.done.begin(), progress.done.end(), [&](const auto& done) {
          const auto& answer = std::get<CompressAnswer>(done.second->body);
          return !answer.sequences[i].triage.window_mass.empty();
        });
    for (const auto& [place, layer] : progress.done) {
      Append(std::get<CompressAnswer>(layer->body).sequences[i],
             progress.plan.cache.layers[place].kv_heads(), has_mass, outcome);
    }
    outcome.blocks_used = static_cast<uint32_t>(BlocksUsed(spec, progress.plan, i, outcome));
    if (!outcome.rewritten_bitmap.empty()) {
      outcome.rewritten_bitmap.resize(CeilDiv(outcome.blocks_used, 8));
    }
    whole.sequences.push_back(std::move(outcome));
  }
  for (const auto& [place, layer] : progress.done) {
    answer.timing.queue += layer->timing.queue;
    answer.timing.score += layer->timing.score;
    answer.timing.select += layer->timing.select;
    answer.timing.move += layer->timing.move;
    answer.timing.measure += layer->timing.measure;
    answer.timing.total += layer->timing.total;
  }
  return answer;
}

}  // namespace kvtriage
