#include "service/engine/plan_scorer_tensors.h"

#include <string>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/plan_tensor.h"

namespace kvtriage {
namespace {

constexpr char kProjection[] = "inputs.output_projection";
constexpr char kMean[] = "inputs.query_mean";
constexpr char kCovariance[] = "inputs.query_covariance";

absl::Status CheckExtent(const std::string& field, size_t layer, uint64_t got, uint64_t expected) {
  if (got == expected) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, field, "does not fit the cache")
      .Index(layer)
      .Got(got)
      .Limit(expected);
}

// One [hidden, Hq, dv] per layer of the call.
absl::Status CheckProjection(const TensorSpec& tensor, const PlanCache& cache) {
  const std::string field = kProjection;
  KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field + ".layers", 0, tensor.layers, cache.layers.size()));
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    const PlanLayer& layer = cache.layers[l];
    KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field + ".heads", l, tensor.heads, layer.q_heads));
    KVTRIAGE_RETURN_IF_ERROR(
        CheckExtent(field + ".elems", l, tensor.elems, layer.v.layout.row_elems));
  }
  return absl::OkStatus();
}

absl::Status PlanProjection(SessionMemory& memory, const TensorSpec& tensor, CompressPlan& plan) {
  KVTRIAGE_RETURN_IF_ERROR(CheckProjection(tensor, plan.cache));
  KVTRIAGE_ASSIGN_OR_RETURN(const ResolvedTensor projection,
                            ResolveTensor(memory, tensor, kProjection, plan.pins));
  for (PlanSequence& sequence : plan.sequences) {
    for (size_t l = 0; l < sequence.triage.layers.size(); ++l) {
      sequence.triage.layers[l].input.output_projection = projection.Layer(l, 0, tensor.rows);
    }
  }
  return absl::OkStatus();
}

// Means [1, Hq, dk] or covariances [dk, Hq, dk] of every layer of the call.
absl::Status CheckMoments(const TensorSpec& tensor, const char* name, bool mean,
                          const PlanCache& cache) {
  const std::string field = name;
  KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field + ".layers", 0, tensor.layers, cache.layers.size()));
  for (size_t l = 0; l < cache.layers.size(); ++l) {
    const PlanLayer& layer = cache.layers[l];
    const uint32_t size = layer.k.layout.row_elems;
    KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field + ".rows", l, tensor.rows, mean ? 1 : size));
    KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field + ".heads", l, tensor.heads, layer.q_heads));
    KVTRIAGE_RETURN_IF_ERROR(CheckExtent(field + ".elems", l, tensor.elems, size));
  }
  return absl::OkStatus();
}

// Queries from before RoPE are turned here, so every layer must say how; that nothing turns is said
// by a rope of no channels.
absl::Status CheckRotary(const PlanCache& cache) {
  for (const PlanLayer& layer : cache.layers) {
    if (cache.registered->spec.layers[layer.index].rope_index != 0) continue;
    return Error(ErrorReason::kStageMismatch, "cache_id",
                 "the layer has no rotary data for queries from before RoPE")
        .Index(layer.index);
  }
  return absl::OkStatus();
}

// Behind the newest row where positions are given: renumbered rows have left the count of the text.
uint64_t NextPosition(const SequenceSpec& sequence) {
  if (!sequence.positions || sequence.physical_len == 0) return sequence.logical_len;
  if (sequence.positions->first) return *sequence.positions->first + sequence.physical_len;
  return static_cast<uint64_t>(sequence.positions->list[sequence.physical_len - 1]) + 1;
}

void SetRotary(CompressPlan& plan) {
  for (PlanSequence& sequence : plan.sequences) {
    sequence.triage.next_position = NextPosition(*sequence.spec);
    for (size_t l = 0; l < sequence.triage.layers.size(); ++l) {
      sequence.triage.layers[l].rope = plan.cache.layers[l].rope;
    }
  }
}

absl::Status PlanMoments(SessionMemory& memory, const ScoreInputsSpec& inputs, CompressPlan& plan) {
  KVTRIAGE_RETURN_IF_ERROR(CheckMoments(*inputs.query_mean, kMean, true, plan.cache));
  KVTRIAGE_RETURN_IF_ERROR(CheckMoments(*inputs.query_covariance, kCovariance, false, plan.cache));
  KVTRIAGE_ASSIGN_OR_RETURN(const ResolvedTensor mean,
                            ResolveTensor(memory, *inputs.query_mean, kMean, plan.pins));
  KVTRIAGE_ASSIGN_OR_RETURN(
      const ResolvedTensor covariance,
      ResolveTensor(memory, *inputs.query_covariance, kCovariance, plan.pins));
  for (PlanSequence& sequence : plan.sequences) {
    for (size_t l = 0; l < sequence.triage.layers.size(); ++l) {
      TriageLayer& layer = sequence.triage.layers[l];
      layer.input.query_mean = mean.Layer(l, 0, 1);
      layer.input.query_covariance = covariance.Layer(l, 0, inputs.query_covariance->rows);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlanScorerTensors(SessionMemory& memory, const CompressSpec& spec,
                               CompressPlan& plan) {
  switch (spec.policy.score.scorer) {
    case Scorer::kCritical:
      return PlanProjection(memory, *spec.inputs.output_projection, plan);
    case Scorer::kExpectedAttention:
      KVTRIAGE_RETURN_IF_ERROR(CheckRotary(plan.cache));
      SetRotary(plan);
      // Else the queries of all rows are there.
      return spec.inputs.query_mean ? PlanMoments(memory, spec.inputs, plan) : absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

}  // namespace kvtriage
