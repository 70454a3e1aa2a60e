// Act, the angle mode, and the list of layers: what every call that may write rows says.
#ifndef KVTRIAGE_SERVICE_VALIDATE_ACT_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_ACT_PROTO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/compress_spec.h"
#include "service/validate/limits.h"

namespace kvtriage {

// Fields are named from the request's root ("act...", "layers_le").
absl::Status ParseAct(const v1::Act& act, const Limits& limits, ActSpec& spec);
absl::Status ParseAngles(std::string_view field, v1::AngleMode angles, AngleMode& mode);
absl::Status CheckLedgerSlot(std::string_view field, uint32_t slot, const Limits& limits);

// Ascending indexes without repeats; whether the cache has them is the planner's to say.
absl::Status ParseLayers(const std::string& layers_le, std::vector<uint32_t>& layers);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_ACT_PROTO_H_
