#include "service/engine/plan_inputs.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/plan_rotation.h"
#include "service/engine/plan_tables.h"
#include "service/engine/plan_tensor.h"

namespace kvtriage {
namespace {

std::string_view SourceField(AttentionSource source) {
  switch (source) {
    case AttentionSource::kQuery:
      return "inputs.query";
    case AttentionSource::kQueryOutput:
      return "inputs.query_output";
    case AttentionSource::kReady:
      return "inputs.attention";
    case AttentionSource::kColumnSums:
      return "inputs.column_sums";
    case AttentionSource::kNone:
      break;
  }
  return "inputs";
}

bool HasQueries(AttentionSource source) {
  return source == AttentionSource::kQuery || source == AttentionSource::kQueryOutput;
}

std::string TensorField(AttentionSource source, std::string_view name) {
  return std::string(SourceField(source)) + "." + std::string(name);
}

absl::Status CheckSums(const CompressSpec& spec) {
  const Scorer scorer = spec.policy.score.scorer;
  if (UsesQueries(scorer) && scorer != Scorer::kAttention && scorer != Scorer::kVatp) {
    return Error(ErrorReason::kPolicyInvalid, "inputs.column_sums",
                 "column sums are for the attention and VATP scorers");
  }
  if (spec.inputs.sums_axis == HeadAxis::kSummed &&
      (scorer != Scorer::kAttention || spec.policy.granularity == Granularity::kPerHead)) {
    return Error(ErrorReason::kPolicyInvalid, "inputs.column_sums.heads",
                 "one row for all heads is for attention with one set per layer or sequence");
  }
  return absl::OkStatus();
}

absl::Status CheckPresent(const CompressSpec& spec) {
  const ScoreInputsSpec& in = spec.inputs;
  const Scorer scorer = spec.policy.score.scorer;
  const auto need = [&](bool needed, const std::optional<TensorSpec>& tensor,
                        std::string_view name) -> absl::Status {
    if (!needed || tensor) return absl::OkStatus();
    return Error(ErrorReason::kFieldMissing, TensorField(in.source, name), "the scorer reads it");
  };
  const bool ready = in.source == AttentionSource::kReady;
  const bool one_pass = in.source == AttentionSource::kQueryOutput;
  const bool logits = scorer == Scorer::kObcKey || scorer == Scorer::kObcJoint;
  KVTRIAGE_RETURN_IF_ERROR(need(one_pass || in.source == AttentionSource::kQuery, in.q, "q"));
  KVTRIAGE_RETURN_IF_ERROR(need(ready, in.a, "a"));
  KVTRIAGE_RETURN_IF_ERROR(need(ready && logits, in.z, "z"));
  KVTRIAGE_RETURN_IF_ERROR(need(one_pass || (ready && NeedsOutputs(scorer)), in.o, "o"));
  KVTRIAGE_RETURN_IF_ERROR(need(one_pass, in.lse, "lse"));
  return need(in.source == AttentionSource::kColumnSums, in.sums, "sums");
}

// Slopes are for ALiBi layers, which cannot do without when logits are made here.
absl::Status CheckAlibi(const CompressSpec& spec, const PlanCache& cache) {
  const ScoreInputsSpec& in = spec.inputs;
  const auto alibi =
      std::find_if(cache.layers.begin(), cache.layers.end(),
                   [](const PlanLayer& layer) { return layer.kind == LayerKind::kAlibi; });
  if (alibi == cache.layers.end()) {
    if (!in.alibi_slopes) return absl::OkStatus();
    return Error(ErrorReason::kFieldInvalid, "inputs.alibi_slopes",
                 "no layer of the call is ALiBi");
  }
  if (in.alibi_slopes || !HasQueries(in.source)) return absl::OkStatus();
  return Error(ErrorReason::kFieldMissing, "inputs.alibi_slopes", "an ALiBi layer needs its slopes")
      .Index(alibi->index);
}

// Which views the kernels will read elements of.
absl::Status CheckReadable(const CompressSpec& spec, const PlanCache& cache) {
  const Scorer scorer = spec.policy.score.scorer;
  const bool rows = spec.inputs.source != AttentionSource::kNone &&
                    spec.inputs.source != AttentionSource::kColumnSums;
  const bool measures = rows && spec.measure.any();
  const bool reads_k = (UsesQueries(scorer) && rows) || measures;
  const bool reads_v = ReadsValues(scorer) || measures;
  for (const PlanLayer& layer : cache.layers) {
    if ((reads_k && layer.k.layout.opaque()) || (reads_v && layer.v.layout.opaque())) {
      return Error(ErrorReason::kUnsupported, "cache_id", "opaque rows can be moved, not scored")
          .Index(layer.index);
    }
  }
  return absl::OkStatus();
}

enum class Elements : uint8_t { kKey, kValue, kOne, kRows, kHead };  // kHead: one row for all
enum class Heads : uint8_t { kQuery, kKv, kOne };

uint32_t HeadsOf(Heads heads, const PlanLayer& layer) {
  if (heads == Heads::kOne) return 1;
  return heads == Heads::kQuery ? layer.q_heads : layer.kv_heads();
}

absl::Status CheckExtent(std::string_view field, std::string_view axis, size_t layer, uint64_t got,
                         uint64_t expected) {
  if (got == expected) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, std::string(field) + "." + std::string(axis),
               "does not fit the cache")
      .Index(layer)
      .Got(got)
      .Limit(expected);
}

// One tensor of the inputs, resolved.
class Input {
 public:
  absl::Status Resolve(SessionMemory& memory, const CompressPlan& plan, const TensorSpec& tensor,
                       std::string field, Heads heads, Elements elements, PinSet& pins) {
    field_ = std::move(field);
    elements_ = elements;
    KVTRIAGE_RETURN_IF_ERROR(
        CheckExtent(field_, "layers", 0, tensor.layers, plan.cache.layers.size()));
    for (size_t l = 0; l < plan.cache.layers.size(); ++l) {
      const PlanLayer& layer = plan.cache.layers[l];
      KVTRIAGE_RETURN_IF_ERROR(
          CheckExtent(field_, "heads", l, tensor.heads, HeadsOf(heads, layer)));
      if (elements == Elements::kRows) continue;
      const uint32_t elems = elements == Elements::kKey     ? layer.k.layout.row_elems
                             : elements == Elements::kValue ? layer.v.layout.row_elems
                                                            : 1;
      KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field_, "elems", l, tensor.elems, elems));
    }
    if (elements == Elements::kHead) {
      KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field_, "rows", 0, tensor.rows, 1));
    } else {
      for (const PlanSequence& sequence : plan.sequences) {
        KVTRIAGE_RETURN_IF_ERROR(CheckRows(tensor, *sequence.spec));
      }
    }
    KVTRIAGE_ASSIGN_OR_RETURN(tensor_, ResolveTensor(memory, tensor, field_, pins));
    return absl::OkStatus();
  }

  // The part of one sequence and layer.
  TensorView Cut(const SequenceSpec& sequence, size_t layer) const {
    if (!tensor_) return {};
    if (elements_ == Elements::kHead) return tensor_.Layer(layer, 0, 1);
    TensorView view = tensor_.Layer(layer, sequence.rows_begin, sequence.rows_count);
    if (elements_ == Elements::kRows) view.elems = static_cast<uint32_t>(sequence.physical_len);
    return view;
  }

 private:
  absl::Status CheckRows(const TensorSpec& tensor, const SequenceSpec& sequence) const {
    const uint64_t end = uint64_t{sequence.rows_begin} + sequence.rows_count;
    if (end > tensor.rows) {
      return Error(ErrorReason::kFieldInvalid, field_ + ".rows", "a sequence's rows end behind it")
          .Got(tensor.rows)
          .Limit(end);
    }
    if (elements_ == Elements::kRows && tensor.elems < sequence.physical_len) {
      return Error(ErrorReason::kGeometryInvalid, field_ + ".elems",
                   "needs one element per cached row")
          .Got(tensor.elems)
          .Limit(sequence.physical_len);
    }
    return absl::OkStatus();
  }

  std::string field_;
  Elements elements_ = Elements::kOne;
  ResolvedTensor tensor_;
};

struct Inputs {
  Input q, o, lse, a, z, sums, sink_logits, alibi_slopes;
};

absl::Status ResolveAll(SessionMemory& memory, const ScoreInputsSpec& spec, CompressPlan& plan,
                        Inputs& inputs) {
  const auto resolve = [&](const std::optional<TensorSpec>& tensor, std::string_view name,
                           Heads heads, Elements elements, Input& input) -> absl::Status {
    if (!tensor) return absl::OkStatus();
    std::string field = elements == Elements::kHead ? "inputs." + std::string(name)
                                                    : TensorField(spec.source, name);
    return input.Resolve(memory, plan, *tensor, std::move(field), heads, elements, plan.pins);
  };
  const Heads sums_heads = spec.sums_axis == HeadAxis::kQuery ? Heads::kQuery
                           : spec.sums_axis == HeadAxis::kKv  ? Heads::kKv
                                                              : Heads::kOne;
  KVTRIAGE_RETURN_IF_ERROR(resolve(spec.q, "q", Heads::kQuery, Elements::kKey, inputs.q));
  KVTRIAGE_RETURN_IF_ERROR(resolve(spec.o, "o", Heads::kQuery, Elements::kValue, inputs.o));
  KVTRIAGE_RETURN_IF_ERROR(resolve(spec.lse, "lse", Heads::kQuery, Elements::kOne, inputs.lse));
  KVTRIAGE_RETURN_IF_ERROR(resolve(spec.a, "a", Heads::kQuery, Elements::kRows, inputs.a));
  KVTRIAGE_RETURN_IF_ERROR(resolve(spec.z, "z", Heads::kQuery, Elements::kRows, inputs.z));
  KVTRIAGE_RETURN_IF_ERROR(resolve(spec.sums, "sums", sums_heads, Elements::kRows, inputs.sums));
  KVTRIAGE_RETURN_IF_ERROR(
      resolve(spec.sink_logits, "sink_logits", Heads::kQuery, Elements::kHead, inputs.sink_logits));
  return resolve(spec.alibi_slopes, "alibi_slopes", Heads::kQuery, Elements::kHead,
                 inputs.alibi_slopes);
}

TriageLayer CutLayer(const CompressSpec& spec, const PlanLayer& layer, size_t index,
                     const PlanSequence& sequence, const Inputs& inputs) {
  const SequenceSpec& rows = *sequence.spec;
  TriageLayer cut;
  cut.layer_index = layer.layer_index;
  cut.rows.k = layer.k;
  cut.rows.v = layer.v;
  if (layer.v.layout.opaque()) cut.rows.v.base = nullptr;
  cut.rows.sequence = {rows.table.data(), rows.first_slot, sequence.triage.rows};
  cut.rows.q_heads = layer.q_heads;
  cut.rows.sliding_window = layer.sliding_window;
  cut.input.source = spec.inputs.source;
  cut.input.scale = static_cast<float>(spec.inputs.softmax_scale);
  cut.input.q = inputs.q.Cut(rows, index);
  cut.input.rotation = RotationOf(spec.inputs, layer, rows);
  cut.input.o = inputs.o.Cut(rows, index);
  cut.input.lse = inputs.lse.Cut(rows, index);
  cut.input.lse_base = spec.inputs.lse_base;
  cut.input.a = inputs.a.Cut(rows, index);
  cut.input.z = inputs.z.Cut(rows, index);
  cut.input.sums = inputs.sums.Cut(rows, index);
  cut.input.sums_axis = spec.inputs.sums_axis;
  cut.input.row_limits = rows.row_limits;
  cut.input.softcap = static_cast<float>(spec.inputs.logit_softcap);
  cut.input.sink_logits = inputs.sink_logits.Cut(rows, index);
  if (layer.kind == LayerKind::kAlibi) {
    cut.input.alibi_slopes = inputs.alibi_slopes.Cut(rows, index);
  }
  return cut;
}

}  // namespace

absl::Status CheckInputs(const CompressSpec& spec, const PlanCache& cache) {
  const Scorer scorer = spec.policy.score.scorer;
  if (spec.inputs.source == AttentionSource::kNone && UsesQueries(scorer) &&
      !spec.from_running_scores) {
    return Error(ErrorReason::kPolicyInvalid, "inputs", "the scorer needs queries and none came");
  }
  if (spec.inputs.source == AttentionSource::kColumnSums) {
    KVTRIAGE_RETURN_IF_ERROR(CheckSums(spec));
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckPresent(spec));
  KVTRIAGE_RETURN_IF_ERROR(CheckAlibi(spec, cache));
  KVTRIAGE_RETURN_IF_ERROR(CheckRotation(spec, cache));
  return CheckReadable(spec, cache);
}

absl::Status PlanInputs(SessionMemory& memory, const CompressSpec& spec, CompressPlan& plan) {
  Inputs inputs;
  KVTRIAGE_RETURN_IF_ERROR(ResolveAll(memory, spec.inputs, plan, inputs));
  for (PlanSequence& sequence : plan.sequences) {
    for (size_t l = 0; l < plan.cache.layers.size(); ++l) {
      sequence.triage.layers.push_back(CutLayer(spec, plan.cache.layers[l], l, sequence, inputs));
    }
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
