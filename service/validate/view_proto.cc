#include "service/validate/view_proto.h"

#include <cmath>
#include <string>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/policy/view_geometry.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"

namespace kvtriage {
namespace {

absl::StatusOr<DType> ParseDType(v1::DType type) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("dtype", type, v1::DType_IsValid));
  switch (type) {
    case v1::DTYPE_F16:
      return DType::kF16;
    case v1::DTYPE_BF16:
      return DType::kBF16;
    case v1::DTYPE_FP8_E4M3:
      return DType::kF8E4M3;
    case v1::DTYPE_FP8_E5M2:
      return DType::kF8E5M2;
    default:
      return DType::kF32;
  }
}

absl::Status CheckExtent(std::string_view field, uint32_t extent) {
  return extent == 0 ? Invalid(field, "extent is 0") : absl::OkStatus();
}

absl::Status CheckAligned(std::string_view field, uint64_t bytes, DType type) {
  const uint64_t element = ElementBytes(type);
  if (bytes % element == 0) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, field, "not a multiple of the element size")
      .Got(bytes)
      .Limit(element);
}

// A stride of 0 makes all elements of an axis the same one, so it must not have two.
absl::Status CheckStride(std::string_view field, uint64_t stride, uint32_t extent, DType type) {
  if (stride == 0 && extent > 1) {
    return Error(ErrorReason::kFieldInvalid, field, "stride is 0 on an axis longer than 1")
        .Limit(extent);
  }
  return CheckAligned(field, stride, type);
}

absl::Status ParseScoredRow(const v1::View& view, ViewSpec& spec) {
  KVTRIAGE_ASSIGN_OR_RETURN(spec.layout.dtype, ParseDType(view.dtype()));
  KVTRIAGE_RETURN_IF_ERROR(CheckExtent("row_elems", view.row_elems()));
  if (view.row_elems() > kMaxHeadSize) {
    return Error(ErrorReason::kUnsupported, "row_elems", "head size outside 1..576")
        .Got(view.row_elems())
        .Limit(kMaxHeadSize);
  }
  spec.layout.row_elems = view.row_elems();
  spec.layout.elem_stride = view.elem_stride();
  const DType type = spec.layout.dtype;
  KVTRIAGE_RETURN_IF_ERROR(CheckAligned("offset", view.offset(), type));
  KVTRIAGE_RETURN_IF_ERROR(CheckAligned("block_stride", view.block_stride(), type));
  KVTRIAGE_RETURN_IF_ERROR(CheckAligned("head_stride", view.head_stride(), type));
  KVTRIAGE_RETURN_IF_ERROR(CheckAligned("slot_stride", view.slot_stride(), type));
  return CheckAligned("elem_stride", view.elem_stride(), type);
}

absl::Status ParseOpaqueRow(const v1::View& view, ViewSpec& spec) {
  if (view.opaque_row_bytes() == 0 || view.opaque_row_bytes() > kMaxOpaqueRowBytes) {
    return Error(ErrorReason::kFieldInvalid, "opaque_row_bytes", "row size outside 1..8192")
        .Got(view.opaque_row_bytes())
        .Limit(kMaxOpaqueRowBytes);
  }
  if (view.row_elems() != 0) return Invalid("row_elems", "an opaque row has no elements");
  if (view.elem_stride() != 0) return Invalid("elem_stride", "an opaque row is contiguous");
  spec.layout.opaque_row_bytes = view.opaque_row_bytes();
  return absl::OkStatus();
}

absl::Status ParseRow(const v1::View& view, ViewSpec& spec) {
  switch (view.encoding_case()) {
    case v1::View::kDtype:
      return ParseScoredRow(view, spec);
    case v1::View::kOpaqueRowBytes:
      return ParseOpaqueRow(view, spec);
    case v1::View::ENCODING_NOT_SET:
      break;
  }
  return Missing("dtype");
}

// What the codes of fp8 rows are multiplied with.
absl::Status ParseScale(const v1::View& view, ViewSpec& spec) {
  if (!view.has_scale()) return absl::OkStatus();
  if (spec.layout.opaque() || !IsF8(spec.layout.dtype)) {
    return Invalid("scale", "only fp8 rows have a scale");
  }
  switch (view.scale().kind_case()) {
    case v1::Scale::kConstant:
      spec.layout.scale = view.scale().constant();
      if (spec.layout.scale > 0 && std::isfinite(spec.layout.scale)) return absl::OkStatus();
      return Invalid("scale.constant", "must be finite and above 0");
    case v1::Scale::kPerRow:
      return absl::OkStatus();
    case v1::Scale::KIND_NOT_SET:
      break;
  }
  return Missing("scale.kind");
}

}  // namespace

absl::StatusOr<std::optional<ViewSpec>> ParseRowScales(const v1::View& view,
                                                       const ViewLayout& rows) {
  if (view.scale().kind_case() != v1::Scale::kPerRow) return std::nullopt;
  const v1::ScaleView& scales = view.scale().per_row();
  if (scales.region_id() == 0) return Missing("scale.per_row.region_id");
  const std::pair<const char*, uint64_t> numbers[] = {{"offset", scales.offset()},
                                                      {"block_stride", scales.block_stride()},
                                                      {"head_stride", scales.head_stride()},
                                                      {"slot_stride", scales.slot_stride()}};
  for (const auto& [field, bytes] : numbers) {
    KVTRIAGE_RETURN_IF_ERROR(
        CheckAligned(std::string("scale.per_row.") + field, bytes, DType::kF32));
  }
  ViewSpec spec{scales.region_id(), scales.offset(), {}};
  spec.layout.block_stride = scales.block_stride();
  spec.layout.head_stride = scales.head_stride();
  spec.layout.slot_stride = scales.slot_stride();
  spec.layout.num_blocks = rows.num_blocks;
  spec.layout.block_slots = rows.block_slots;
  spec.layout.heads = rows.heads;
  spec.layout.opaque_row_bytes = sizeof(float);
  absl::Status sound = ViewSpan(spec.layout).status();
  if (sound.ok()) sound = CheckNested(spec.layout);
  if (!sound.ok()) return UnderField(sound, "scale.per_row");
  return spec;
}

absl::StatusOr<ViewSpec> ParseView(const v1::View& view) {
  if (view.region_id() == 0) return Missing("region_id");
  KVTRIAGE_RETURN_IF_ERROR(CheckExtent("num_blocks", view.num_blocks()));
  KVTRIAGE_RETURN_IF_ERROR(CheckExtent("block_slots", view.block_slots()));
  KVTRIAGE_RETURN_IF_ERROR(CheckExtent("heads", view.heads()));
  ViewSpec spec;
  spec.region_id = view.region_id();
  spec.offset = view.offset();
  spec.layout.block_stride = view.block_stride();
  spec.layout.head_stride = view.head_stride();
  spec.layout.slot_stride = view.slot_stride();
  spec.layout.num_blocks = view.num_blocks();
  spec.layout.block_slots = view.block_slots();
  spec.layout.heads = view.heads();
  KVTRIAGE_RETURN_IF_ERROR(ParseRow(view, spec));
  KVTRIAGE_RETURN_IF_ERROR(ParseScale(view, spec));
  KVTRIAGE_RETURN_IF_ERROR(ViewSpan(spec.layout).status());
  if (view.num_blocks() > kMaxBlocksPerView) {
    return Error(ErrorReason::kTooMany, "num_blocks", "block ids are int32")
        .Got(view.num_blocks())
        .Limit(kMaxBlocksPerView);
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckNested(spec.layout));
  return spec;
}

absl::StatusOr<TensorSpec> ParseTensor(const v1::Tensor& tensor) {
  if (tensor.region_id() == 0) return Missing("region_id");
  TensorSpec spec;
  KVTRIAGE_ASSIGN_OR_RETURN(spec.dtype, ParseDType(tensor.dtype()));
  spec.region_id = tensor.region_id();
  spec.offset = tensor.offset();
  KVTRIAGE_RETURN_IF_ERROR(CheckAligned("offset", tensor.offset(), spec.dtype));
  struct AxisField {
    const char* extent_field;
    const char* stride_field;
    uint32_t extent;
    uint64_t stride;
    uint32_t& extent_out;
    uint64_t& stride_out;
  };
  const AxisField axes[] = {
      {"layers", "layer_stride", tensor.layers(), tensor.layer_stride(), spec.layers,
       spec.layer_stride},
      {"rows", "row_stride", tensor.rows(), tensor.row_stride(), spec.rows, spec.row_stride},
      {"heads", "head_stride", tensor.heads(), tensor.head_stride(), spec.heads, spec.head_stride},
      {"elems", "elem_stride", tensor.elems(), tensor.elem_stride(), spec.elems, spec.elem_stride}};
  for (const AxisField& axis : axes) {
    KVTRIAGE_RETURN_IF_ERROR(CheckExtent(axis.extent_field, axis.extent));
    KVTRIAGE_RETURN_IF_ERROR(CheckStride(axis.stride_field, axis.stride, axis.extent, spec.dtype));
    axis.extent_out = axis.extent;
    axis.stride_out = axis.stride;
  }
  KVTRIAGE_RETURN_IF_ERROR(TensorSpan(spec).status());
  return spec;
}

}  // namespace kvtriage
