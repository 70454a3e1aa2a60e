#include "service/engine/group_terms.h"

#include <bit>

#include "kernels/core/error.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

// Order matters, and so does where a list ends.
class Hash {
 public:
  Hash& Add(uint64_t number) {
    value_ = SplitMix64(value_ ^ number, 0);
    return *this;
  }
  Hash& Add(double number) { return Add(std::bit_cast<uint64_t>(number)); }
  template <typename T>
  Hash& Add(const std::optional<T>& number) {
    Add(uint64_t{number.has_value()});
    if (number) Add(*number);
    return *this;
  }
  Hash& Add(uint32_t number) { return Add(uint64_t{number}); }
  template <typename T>
  Hash& AddAll(const std::vector<T>& list) {
    Add(uint64_t{list.size()});
    for (const T& entry : list) Add(static_cast<uint64_t>(entry));
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

uint64_t HashOf(const Budget& budget) {
  return Hash()
      .Add(budget.kept_tokens)
      .Add(budget.kept_ratio)
      .Add(budget.adaptive_alpha)
      .Add(budget.pyramid_beta)
      .AddAll(budget.explicit_layers)
      .AddAll(budget.explicit_heads)
      .value();
}

uint64_t HashOf(const PolicySpec& policy) {
  const ScoreSpec& score = policy.score;
  return Hash()
      .Add(static_cast<uint32_t>(score.scorer))
      .Add(static_cast<uint32_t>(score.reduce))
      .Add(static_cast<uint32_t>(score.pool))
      .Add(score.pool_kernel)
      .Add(score.random_key)
      .Add(score.lag)
      .Add(score.future)
      .Add(score.epsilon)
      .Add(score.first_stage)
      .Add(uint32_t{policy.window.all})
      .Add(policy.window.last)
      .Add(policy.protect.sinks)
      .Add(policy.protect.recent)
      .Add(policy.protect.recent_share)
      .Add(static_cast<uint32_t>(policy.granularity))
      .value();
}

uint64_t LayersOf(const PlanCache& cache) {
  Hash hash;
  hash.Add(cache.registered->spec.num_layers);
  for (const PlanLayer& layer : cache.layers) {
    hash.Add(layer.layer_index).Add(layer.sliding_window);
  }
  return hash.value();
}

uint64_t LengthsOf(const CompressSpec& spec) {
  Hash hash;
  for (const SequenceSpec& sequence : spec.sequences) hash.Add(sequence.physical_len);
  return hash.value();
}

uint64_t ProtectOf(const CompressSpec& spec) {
  Hash hash;
  for (const SequenceSpec& sequence : spec.sequences) {
    hash.Add(static_cast<uint32_t>(sequence.protect.granularity));
    hash.Add(uint64_t{sequence.protect.lists.size()});
    for (const std::vector<int32_t>& list : sequence.protect.lists) hash.AddAll(list);
  }
  return hash.value();
}

uint64_t ActOf(const CompressSpec& spec) {
  Hash hash;
  hash.Add(static_cast<uint32_t>(spec.act.kind));
  hash.Add(uint32_t{spec.act.renumber.has_value()});
  if (spec.act.renumber) hash.Add(static_cast<uint32_t>(*spec.act.renumber));
  return hash.value();
}

uint64_t ClassesOf(const SelectRecomputeSpec& spec) {
  Hash hash;
  hash.Add(spec.prefix).Add(spec.suffix).Add(uint32_t{spec.no_logits});
  return hash.AddAll(spec.cached_bitmap).AddAll(spec.must).value();
}

uint64_t PreviousOf(const SelectRecomputeSpec& spec) {
  Hash hash;
  if (spec.previous) hash.Add(spec.previous->base).AddAll(spec.previous->hkvd);
  return hash.value();
}

}  // namespace

GroupTerms TermsOf(const CompressSpec& spec, const PlanCache& cache) {
  return {
      {"group.total_kv_heads", spec.group->total_kv_heads},
      {"layers_le", LayersOf(cache)},
      {"sequences", spec.sequences.size()},
      {"sequences.physical_len", LengthsOf(spec)},
      {"sequences.protect", ProtectOf(spec)},
      {"policy", HashOf(spec.policy)},
      {"policy.parts.budget", HashOf(spec.policy.budget)},
      {"act", ActOf(spec)},
      {"output.lengths", static_cast<uint64_t>(spec.lengths)},
  };
}

GroupTerms TermsOf(const SelectRecomputeSpec& spec) {
  return {
      {"group.total_kv_heads", spec.group->total_kv_heads},
      {"rows", spec.rows},
      {"must_le", ClassesOf(spec)},
      {"metric", static_cast<uint64_t>(spec.metric)},
      {"ratio", Hash().Add(spec.ratio).Add(spec.threshold).value()},
      {"previous", PreviousOf(spec)},
      {"positions", Hash().Add(spec.first_position).AddAll(spec.positions).value()},
  };
}

absl::Status CheckTermsEqual(const GroupTerms& a, const GroupTerms& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].hash == b[i].hash) continue;
    return Error(ErrorReason::kGroupMismatch, a[i].field, "the ranks of the group differ in it");
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
