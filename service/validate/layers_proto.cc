#include "service/validate/layers_proto.h"

#include "kernels/core/error.h"
#include "service/validate/compress_proto.h"
#include "service/validate/field_checks.h"
#include "service/validate/header_proto.h"

namespace kvtriage {

absl::StatusOr<CompressSpec> ParseLayersOpen(const v1::CompressLayersRequest& request,
                                             const Limits& limits, const PolicyDefaults& defaults) {
  if (!request.has_open()) return Missing("open");
  const v1::CompressRequest& open = request.open();
  if (open.has_header()) return Invalid("open.header", "every layer has a header of its own");
  if (open.has_group()) {
    return absl::Status(Error(ErrorReason::kUnsupported, "open.group",
                              "ranks meet once in a call: not layer by layer"));
  }
  CompressSpec spec;
  const absl::Status status = ParseCompressBody(open, limits, defaults, spec);
  if (!status.ok()) return UnderField(status, "open");
  if (spec.from_running_scores) {
    return absl::Status(Error(ErrorReason::kPolicyInvalid, "open.inputs",
                              "the scorer needs queries and none were given"));
  }
  if (spec.policy.granularity == Granularity::kPerSequence) {
    return absl::Status(Error(ErrorReason::kPolicyInvalid, "open.policy.parts.granularity",
                              "one set for all layers cannot be answered layer by layer"));
  }
  return spec;
}

absl::StatusOr<LayerReadySpec> ParseLayerReady(const v1::CompressLayersRequest& request) {
  if (request.has_open()) return Invalid("open", "only layers may follow the first message");
  if (!request.has_layer()) return Missing("layer");
  LayerReadySpec spec;
  const auto header = ParseHeader(request.layer().has_header(), request.layer().header());
  if (!header.ok()) return UnderField(header.status(), "layer");
  spec.header = *header;
  if (spec.header.resolve) {
    return Invalid("layer.header.resolve", "a layer is resolved with Compress");
  }
  spec.layer = request.layer().layer();
  return spec;
}

}  // namespace kvtriage
