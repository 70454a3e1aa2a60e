#include "kernels/cuda/device_inputs.h"

#include "kernels/core/checked_math.h"

namespace kvtriage {

uint32_t AccessWidth(std::span<const uint64_t> numbers) {
  uint64_t bits = 16;
  for (const uint64_t number : numbers) bits |= number;
  return static_cast<uint32_t>(bits & (~bits + 1));  // the lowest set bit
}

DeviceTensor OnDevice(const TensorView& tensor) {
  return {.base = tensor.base,
          .row_stride = tensor.row_stride,
          .head_stride = tensor.head_stride,
          .elem_stride = tensor.elem_stride,
          .dtype = tensor.dtype};
}

absl::StatusOr<const int32_t*> DeviceInputs::List(std::span<const int32_t> list) {
  if (list.empty()) return nullptr;
  const auto key = std::make_pair(list.data(), list.size());
  const auto found = copies_.find(key);
  if (found != copies_.end()) return found->second;
  KVTRIAGE_ASSIGN_OR_RETURN(const int32_t* copy, workspace_.Upload(list));
  copies_[key] = copy;
  return copy;
}

absl::StatusOr<DeviceRows> DeviceInputs::Rows(const KvView& view, const SequenceRows& rows,
                                              uint32_t head, uint64_t elem_stride) {
  const ViewLayout& layout = view.layout;
  const uint64_t blocks = CeilDiv(uint64_t{rows.first_slot} + rows.rows, layout.block_slots);
  KVTRIAGE_ASSIGN_OR_RETURN(const int32_t* table, List({rows.table, blocks}));
  return DeviceRows{.head = view.base + head * layout.head_stride,
                    .block_stride = layout.block_stride,
                    .slot_stride = layout.slot_stride,
                    .elem_stride = elem_stride,
                    .table = table,
                    .block_slots = layout.block_slots,
                    .first_slot = rows.first_slot};
}

absl::StatusOr<DeviceView> DeviceInputs::View(const KvView& view, const SequenceRows& rows) {
  DeviceView made{};
  KVTRIAGE_ASSIGN_OR_RETURN(made.rows, Rows(view, rows, 0, view.layout.elem_stride));
  made.head_stride = view.layout.head_stride;
  made.dtype = view.layout.dtype;
  made.heads = view.layout.heads;
  made.row_elems = view.layout.row_elems;
  made.scale = view.layout.scale;
  made.scales = view.scales.base;
  made.scale_block_stride = view.scales.block_stride;
  made.scale_head_stride = view.scales.head_stride;
  made.scale_slot_stride = view.scales.slot_stride;
  return made;
}

bool WideRows(const KvView& view) {
  const ViewLayout& layout = view.layout;
  if (ElementBytes(layout.dtype) != 2 || !layout.contiguous_rows()) return false;
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(view.base), layout.block_stride,
                              layout.head_stride, layout.slot_stride, layout.row_bytes()};
  return AccessWidth(numbers) == 16;
}

}  // namespace kvtriage
