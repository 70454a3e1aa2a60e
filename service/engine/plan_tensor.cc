#include "service/engine/plan_tensor.h"

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/policy/view_geometry.h"

namespace kvtriage {

TensorView ResolvedTensor::Layer(size_t layer, uint32_t first_row, uint32_t rows) const {
  TensorView view;
  view.base = base + layer * spec.layer_stride + first_row * spec.row_stride;
  view.dtype = spec.dtype;
  view.rows = rows;
  view.heads = spec.heads;
  view.elems = spec.elems;
  view.row_stride = spec.row_stride;
  view.head_stride = spec.head_stride;
  view.elem_stride = spec.elem_stride;
  return view;
}

absl::StatusOr<ResolvedTensor> ResolveTensor(SessionMemory& memory, const TensorSpec& tensor,
                                             std::string_view field, PinSet& pins) {
  KVTRIAGE_ASSIGN_OR_RETURN(const RegionPin* pin, pins.Pin(memory, tensor.region_id, field));
  absl::StatusOr<uint64_t> span = TensorSpan(tensor);
  if (!span.ok()) {
    return absl::Status(
        Error(ErrorReason::kGeometryOverflow, field, "extents and strides do not fit 63 bits"));
  }
  if (!RangeFits(tensor.offset, *span, pin->size())) {
    return absl::Status(Error(ErrorReason::kRangeOutOfRegion, field, "ends outside its region")
                            .Got(*span)
                            .Limit(pin->size()));
  }
  return ResolvedTensor{pin->data() + tensor.offset, tensor};
}

}  // namespace kvtriage
