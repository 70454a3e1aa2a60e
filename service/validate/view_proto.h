// View and Tensor: how to find rows in lent memory. Checks what the numbers alone tell; whether a
// view lies inside its region is for the owner of the regions.
#ifndef KVTRIAGE_SERVICE_VALIDATE_VIEW_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_VIEW_PROTO_H_

#include <optional>

#include "absl/status/statusor.h"
#include "kvtriage/v1/types.pb.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

// Field names in errors are relative to the message ("num_blocks"). A view that passes does not
// overlap itself, and its span fits 63 bits (offset + span may still wrap: compare with RangeFits).
absl::StatusOr<ViewSpec> ParseView(const v1::View& view);
// The scales of the rows of a view that passed, as opaque rows of 4 bytes; nothing when they have
// none of their own. Fields are relative to the View ("scale.per_row.offset").
absl::StatusOr<std::optional<ViewSpec>> ParseRowScales(const v1::View& view,
                                                       const ViewLayout& rows);
absl::StatusOr<TensorSpec> ParseTensor(const v1::Tensor& tensor);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_VIEW_PROTO_H_
