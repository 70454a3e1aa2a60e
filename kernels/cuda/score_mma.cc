#include "kernels/cuda/score_mma.h"

#include <span>

#include "kernels/core/dtype.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/score_mma_shape.h"

namespace kvtriage {
namespace {

constexpr uint32_t kChunkBytes = 16;  // that a thread copies at once

bool TakesView(const KvView& view, DType type) {
  const ViewLayout& layout = view.layout;
  if (layout.opaque() || layout.dtype != type || !layout.contiguous_rows()) return false;
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(view.base), layout.block_stride,
                              layout.head_stride, layout.slot_stride, layout.row_bytes()};
  return layout.row_elems <= kMmaMostElems && AccessWidth(numbers) == kChunkBytes;
}

bool TakesTensor(const TensorView& tensor, DType type) {
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(tensor.base), tensor.row_stride,
                              tensor.head_stride};
  return tensor.base != nullptr && tensor.dtype == type &&
         (tensor.elem_stride == ElementBytes(type) || tensor.elems == 1) &&
         AccessWidth(numbers) == kChunkBytes;
}

}  // namespace

MmaType MmaTypeOf(const ScoreRequest& request) {
  const AttentionInput& input = request.input;
  const bool given = input.source == AttentionSource::kQueryOutput;
  if (!given && input.source != AttentionSource::kQuery) return MmaType::kNone;
  if (request.spec.reduce != Reduce::kSum && request.spec.reduce != Reduce::kMean) {
    return MmaType::kNone;
  }
  if (input.softcap > 0 || input.alibi_slopes || input.rotation.rope != nullptr) {
    return MmaType::kNone;
  }
  const DType type = request.layer.k.layout.dtype;
  if (type != DType::kBF16 && type != DType::kF16) return MmaType::kNone;
  bool takes = TakesView(request.layer.k, type) && TakesTensor(input.q, type);
  if (ReadsValues(request.spec.scorer)) takes = takes && TakesView(request.layer.v, type);
  if (NeedsOutputs(request.spec.scorer)) takes = takes && given && TakesTensor(input.o, type);
  if (!takes) return MmaType::kNone;
  return type == DType::kBF16 ? MmaType::kBf16 : MmaType::kF16;
}

}  // namespace kvtriage
