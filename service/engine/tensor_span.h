// How far a tensor's bytes reach.
#ifndef KVTRIAGE_SERVICE_ENGINE_TENSOR_SPAN_H_
#define KVTRIAGE_SERVICE_ENGINE_TENSOR_SPAN_H_

#include <cstdint>

#include "kernels/core/dtype.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// From its first byte to behind its last; it lies in memory, so this does not wrap.
inline uint64_t SpanBytes(const TensorView& view) {
  if (view.rows == 0 || view.heads == 0 || view.elems == 0) return 0;
  return (view.rows - 1) * view.row_stride + (view.heads - 1) * view.head_stride +
         (view.elems - 1) * view.elem_stride + ElementBytes(view.dtype);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TENSOR_SPAN_H_
