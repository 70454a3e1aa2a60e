#include "client/cpp/observe_proto.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "client/cpp/compress_from_proto.h"
#include "client/cpp/compress_to_proto.h"
#include "client/cpp/local_error.h"
#include "client/cpp/policy_proto.h"
#include "client/cpp/sequence_to_proto.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

absl::Status Malformed(std::string_view what) {
  return LocalError(absl::StatusCode::kInternal, "bad_answer", what);
}

bool MayEvict(const ObserveRequest& request) {
  return std::any_of(request.steps.begin(), request.steps.end(),
                     [](const ObserveStep& step) { return step.may_evict(); });
}

}  // namespace

bool WritesInPlace(const ObserveRequest& request) {
  return std::holds_alternative<InPlace>(request.act) && MayEvict(request);
}

v1::ObserveRequest ToProto(const ObserveRequest& request, uint32_t ledger_slot,
                           const MemoryIds& ids) {
  v1::ObserveRequest out;
  out.set_cache_id(ids.IdOf(request.cache));
  if (request.policy.has_value()) *out.mutable_policy() = ToProto(*request.policy);
  for (const ObserveStep& step : request.steps) {
    v1::ObserveRequest::SequenceStep& to = *out.add_steps();
    *to.mutable_sequence() = ToProto(step.sequence);
    to.set_draft_rows(step.draft_rows);
    to.set_trigger(step.trigger);
    to.set_accumulate_only(step.accumulate_only);
    // Only a sequence that can be copied has a place to be copied to.
    if (!step.may_evict()) to.mutable_sequence()->clear_destination();
  }
  *out.mutable_inputs() = ToProto(request.inputs, ids);
  if (!MayEvict(request)) return out;
  *out.mutable_act() = ToProto(request.act, request.renumber, ledger_slot, ids);
  *out.mutable_output() = ToProto(request.lengths, request.kept_format);
  return out;
}

absl::StatusOr<ObserveResult> FromProto(const v1::ObserveResponse& response,
                                        const ObserveRequest& request,
                                        const std::vector<uint32_t>& heads) {
  ObserveResult out;
  out.job_id = response.header().job_id();
  out.replayed = response.header().replayed();
  out.timing = FromProto(response.header().timing());
  out.policy = FromProto(response.policy());
  if (static_cast<size_t>(response.steps_size()) != request.steps.size()) {
    return Malformed("another number of results than steps");
  }
  for (size_t i = 0; i < request.steps.size(); ++i) {
    const v1::ObserveResponse::StepResult& from = response.steps(static_cast<int>(i));
    const Sequence& sequence = request.steps[i].sequence;
    if (from.sequence_id() != sequence.sequence_id) return Malformed("results are of other steps");
    ObserveStepResult& step = out.steps.emplace_back();
    step.sequence_id = from.sequence_id();
    step.draft_rows = from.draft_rows();
    step.started = from.started();
    if (!from.evicted()) continue;
    KVTRIAGE_ASSIGN_OR_RETURN(
        step.evicted, FromProto(from.result(), sequence, request.act, request.kept_format, heads));
  }
  return out;
}

v1::RewindRequest ToProto(const RewindRequest& request) {
  v1::RewindRequest out;
  out.set_sequence_id(request.sequence_id);
  out.set_generation(request.generation);
  out.set_rows(request.rows);
  return out;
}

}  // namespace kvtriage::client
