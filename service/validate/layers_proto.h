// The two messages of a CompressLayers stream. Pure.
#ifndef KVTRIAGE_SERVICE_VALIDATE_LAYERS_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_LAYERS_PROTO_H_

#include "absl/status/statusor.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/policy/compress_spec.h"
#include "service/policy/named_policies.h"
#include "service/validate/limits.h"

namespace kvtriage {

// The first message, whose fields are named "open....". Everything that ParseCompress checks; and
// FIELD_MISSING (another message came), FIELD_INVALID (a header: every layer has its own),
// POLICY_INVALID (one set for the whole sequence needs all layers before the first answer).
absl::StatusOr<CompressSpec> ParseLayersOpen(const v1::CompressLayersRequest& request,
                                             const Limits& limits, const PolicyDefaults& defaults);

struct LayerReadySpec {
  RequestHeader header;
  uint32_t layer = 0;
};

// Any later message, whose fields are named "layer....". FIELD_INVALID for a second `open` and for
// a resolve, which is asked with Compress.
absl::StatusOr<LayerReadySpec> ParseLayerReady(const v1::CompressLayersRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_LAYERS_PROTO_H_
