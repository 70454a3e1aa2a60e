// Output: how an answer is given, and which lengths the engine can carry.
#ifndef KVTRIAGE_SERVICE_VALIDATE_OUTPUT_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_OUTPUT_PROTO_H_

#include <string_view>

#include "absl/status/status.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/compress_spec.h"

namespace kvtriage {

// Fields are named from the request's root. LENGTHS_UNEQUAL (field "output.lengths") when `budget`
// breaks the rule.
absl::Status ParseOutput(bool present, const v1::Output& output, const Budget& budget,
                         LengthRule& lengths, KeptFormat& format);

// Whether the budget keeps to a rule of lengths that `field` asks for: LENGTHS_UNEQUAL. Explicit
// counts per head under kPerLayer are left to the planner: it knows which head is whose.
absl::Status CheckLengths(const Budget& budget, LengthRule rule, std::string_view field);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_OUTPUT_PROTO_H_
