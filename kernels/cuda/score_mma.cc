#include "kernels/cuda/score_mma.h"

#include <span>

#include "kernels/core/dtype.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/score_mma_shape.h"

namespace kvtriage {
namespace {

constexpr uint32_t kChunkBytes = 16;  // that a thread copies at once

bool IsWide(const TensorView& tensor) {
  const uint64_t bytes = ElementBytes(tensor.dtype);
  if (tensor.base == nullptr || tensor.elem_stride != bytes) return false;
  const uint64_t numbers[] = {reinterpret_cast<uintptr_t>(tensor.base), tensor.row_stride,
                              tensor.head_stride, tensor.elems * bytes};
  return AccessWidth(numbers) == kChunkBytes;
}

bool Takes(const KvView& view, DType type) {
  return view.layout.dtype == type && view.layout.row_elems <= kMmaMostElems;
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
  bool takes = Takes(request.layer.k, type) && input.q.dtype == type;
  if (ReadsValues(request.spec.scorer)) takes = takes && Takes(request.layer.v, type);
  if (NeedsOutputs(request.spec.scorer)) takes = takes && given && input.o.dtype == type;
  if (!takes) return MmaType::kNone;
  return type == DType::kBF16 ? MmaType::kBf16 : MmaType::kF16;
}

WideInputs WideInputsOf(const ScoreRequest& request) {
  return {.k = WideRows(request.layer.k),
          .v = request.layer.v.base != nullptr && WideRows(request.layer.v),
          .q = IsWide(request.input.q),
          .o = IsWide(request.input.o)};
}

}  // namespace kvtriage
