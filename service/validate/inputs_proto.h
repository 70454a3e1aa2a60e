// ScoreInputs: what to score from, checked against the policy that will read it.
#ifndef KVTRIAGE_SERVICE_VALIDATE_INPUTS_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_INPUTS_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Fields are named from the request's root ("inputs.query.q"). Absent inputs are keys_only.
// POLICY_INVALID when the scorer cannot work from the source; FIELD_MISSING for a tensor that
// scorer or measure reads. Left to the planner: layers, heads and elems against the cache, ranges
// against regions; and, when `policy` is null because the caller does not know it yet, what the
// scorer needs.
absl::StatusOr<ScoreInputsSpec> ParseInputs(bool present, const v1::ScoreInputs& inputs,
                                            const PolicySpec* policy, bool oracle_recall);

// softmax_scale: finite and above 0, in float32 too. FIELD_INVALID.
absl::Status ParseScale(double scale, ScoreInputsSpec& spec);

// The rows of one sequence against the inputs: rows_begin + rows_count on every row axis, enough
// rows for window "all", enough cached-row elements. Field names are relative to the sequence
// ("rows_count") or, for a tensor too narrow, from the root.
absl::Status CheckInputRows(const ScoreInputsSpec& inputs, const PolicySpec& policy,
                            const SequenceSpec& sequence);

// What of that needs no policy: the row axes alone.
absl::Status CheckRowAxis(const ScoreInputsSpec& inputs, const SequenceSpec& sequence);

// A tensor too narrow for the longest of `sequences`: GEOMETRY_INVALID, named from the root.
absl::Status CheckRowElements(const ScoreInputsSpec& inputs,
                              const std::vector<SequenceSpec>& sequences);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_INPUTS_PROTO_H_
