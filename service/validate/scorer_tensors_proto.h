// Tensors of ScoreInputs that single scorers read beside the source of attention.
#ifndef KVTRIAGE_SERVICE_VALIDATE_SCORER_TENSORS_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_SCORER_TENSORS_PROTO_H_

#include <optional>

#include "absl/status/status.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// A tensor that the scorer does not read may be there: it is lent once and named by every call.
// FIELD_MISSING for one that it reads; no scorer: the caller does not know it yet. Fields are named
// from the request's root
// ("inputs.output_projection"). Left to the planner: extents against the cache.
absl::Status ParseScorerTensors(const v1::ScoreInputs& inputs, std::optional<Scorer> scorer,
                                ScoreInputsSpec& spec);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_SCORER_TENSORS_PROTO_H_
