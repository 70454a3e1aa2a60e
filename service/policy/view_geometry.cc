#include "service/policy/view_geometry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"

namespace kvtriage {
namespace {

// Wide enough for any product of a 32-bit extent and a 64-bit stride, and for sums of a few.
using Wide = __int128;

constexpr uint64_t kMaxBytes = (uint64_t{1} << 63) - 1;

struct Axis {
  uint64_t stride = 0;  // bytes
  uint64_t extent = 1;

  friend bool operator==(const Axis&, const Axis&) = default;
};

absl::Status Overflow() {
  return Error(ErrorReason::kGeometryOverflow, "", "extents and strides do not fit 63 bits");
}

// Bytes from the first byte of the first unit to one past the last byte of the last one; refused
// too when the units alone, packed, do not fit.
absl::StatusOr<uint64_t> Span(std::span<const Axis> axes, uint64_t unit_bytes) {
  uint64_t span = unit_bytes;
  uint64_t packed = unit_bytes;
  for (const Axis& axis : axes) {
    const auto reach = CheckedMul(axis.extent - 1, axis.stride);
    if (!reach) return Overflow();
    const auto longer = CheckedAdd(span, *reach);
    const auto more = CheckedMul(packed, axis.extent);
    if (!longer || !more) return Overflow();
    span = *longer;
    packed = *more;
  }
  if (span > kMaxBytes || packed > kMaxBytes) return Overflow();
  return span;
}

// A view cut into units that are contiguous bytes, and the axes along which they repeat: only those
// with an extent above 1, largest stride first.
struct Cut {
  std::array<Axis, 4> axes;
  size_t count = 0;
  uint64_t unit_bytes = 0;

  explicit Cut(const ViewLayout& layout) {
    Add(layout.block_stride, layout.num_blocks);
    Add(layout.head_stride, layout.heads);
    Add(layout.slot_stride, layout.block_slots);
    if (layout.contiguous_rows()) {
      unit_bytes = layout.row_bytes();
    } else {
      unit_bytes = ElementBytes(layout.dtype);
      Add(layout.elem_stride, layout.row_elems);
    }
    std::sort(axes.begin(), axes.begin() + count, [](const Axis& a, const Axis& b) {
      return a.stride != b.stride ? a.stride > b.stride : a.extent > b.extent;
    });
  }

  void Add(uint64_t stride, uint64_t extent) {
    if (extent > 1) axes[count++] = {stride, extent};
  }

  // First to one past the last byte of one cell: the units inside the first `common` axes.
  Wide CellBytes(size_t common) const {
    Wide bytes = unit_bytes;
    for (size_t i = common; i < count; ++i) {
      bytes += Wide{axes[i].extent - 1} * Wide{axes[i].stride};
    }
    return bytes;
  }
};

// Whether two cells meet when the second starts `distance` bytes after the first and both repeat
// along `axes`. Every axis is nested, so only two index differences per axis can bring cells
// together.
bool CellsMeet(std::span<const Axis> axes, Wide distance, Wide cell_a, Wide cell_b) {
  if (axes.empty()) return -cell_b < distance && distance < cell_a;
  const Wide stride = axes.front().stride;
  const Wide extent = axes.front().extent;
  Wide digit = distance / stride;
  if (digit * stride > distance) --digit;  // floor, not truncation
  for (const Wide candidate : {digit, digit + 1}) {
    if (candidate <= -extent || candidate >= extent) continue;
    if (CellsMeet(axes.subspan(1), distance - candidate * stride, cell_a, cell_b)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<uint64_t> ViewSpan(const ViewLayout& layout) {
  const std::array<Axis, 4> axes = {
      {{layout.opaque() ? 0 : layout.elem_stride, layout.opaque() ? 1 : uint64_t{layout.row_elems}},
       {layout.slot_stride, layout.block_slots},
       {layout.head_stride, layout.heads},
       {layout.block_stride, layout.num_blocks}}};
  return Span(axes, layout.opaque() ? layout.opaque_row_bytes : ElementBytes(layout.dtype));
}

absl::StatusOr<uint64_t> TensorSpan(const TensorSpec& tensor) {
  const std::array<Axis, 4> axes = {{{tensor.elem_stride, tensor.elems},
                                     {tensor.head_stride, tensor.heads},
                                     {tensor.row_stride, tensor.rows},
                                     {tensor.layer_stride, tensor.layers}}};
  return Span(axes, ElementBytes(tensor.dtype));
}

absl::Status CheckNested(const ViewLayout& layout) {
  const Cut cut(layout);
  Wide covered = cut.unit_bytes;
  for (size_t left = cut.count; left > 0; --left) {
    const Axis& axis = cut.axes[left - 1];
    if (Wide{axis.stride} < covered) {
      return Error(ErrorReason::kViewNotNested, "", "a stride is smaller than what lies inside it")
          .Got(axis.stride)
          .Limit(static_cast<uint64_t>(std::min(covered, Wide{UINT64_MAX})));
    }
    covered += Wide{axis.extent - 1} * Wide{axis.stride};
  }
  return absl::OkStatus();
}

bool ViewsAlias(uint64_t offset_a, const ViewLayout& a, uint64_t offset_b, const ViewLayout& b) {
  const Cut cut_a(a);
  const Cut cut_b(b);
  const Wide distance = Wide{offset_b} - Wide{offset_a};
  if (distance >= cut_a.CellBytes(0) || -distance >= cut_b.CellBytes(0)) return false;
  size_t common = 0;
  while (common < std::min(cut_a.count, cut_b.count) && cut_a.axes[common] == cut_b.axes[common]) {
    ++common;
  }
  return CellsMeet({cut_a.axes.data(), common}, distance, cut_a.CellBytes(common),
                   cut_b.CellBytes(common));
}

}  // namespace kvtriage
