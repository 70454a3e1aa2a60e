// ObserveRequest: everything that the message alone tells. Pure; O(bytes of the message).
#ifndef KVTRIAGE_SERVICE_VALIDATE_OBSERVE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_OBSERVE_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/named_policies.h"
#include "service/policy/observe_spec.h"
#include "service/validate/limits.h"

namespace kvtriage {

// With `resolve` set in the header the body is ignored and only the header is filled in. An absent
// policy is the one that the sequences run under, so what depends on the policy is left to the
// engine (service/engine/observe_checks.h) whether it came or not; beside that and the known
// lengths of the sequences, what ParseCompress leaves to the planner.
absl::StatusOr<ObserveSpec> ParseObserve(const v1::ObserveRequest& request, const Limits& limits,
                                         const PolicyDefaults& defaults);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_OBSERVE_PROTO_H_
