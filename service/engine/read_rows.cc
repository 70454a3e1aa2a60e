#include "service/engine/read_rows.h"

#include "kernels/core/dtype.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/tensor_span.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMostCopied = uint64_t{64} << 20;
// Copies cost by the piece: gaps up to this much come along.
constexpr uint64_t kWorthCopying = 4;

void Append(const TensorView& view, std::vector<float>& values) {
  for (uint32_t row = 0; row < view.rows; ++row) {
    for (uint32_t head = 0; head < view.heads; ++head) {
      for (uint32_t e = 0; e < view.elems; ++e) {
        values.push_back(LoadElement(view.At(row, head, e), view.dtype));
      }
    }
  }
}

// In as few pieces as the gaps allow.
absl::Status AppendFrom(DeviceCopier& copier, const TensorView& view, std::vector<float>& values) {
  const uint64_t span = SpanBytes(view);
  const uint64_t payload = uint64_t{view.rows} * view.heads * view.elems * ElementBytes(view.dtype);
  const bool one_row = view.rows == 1 && view.heads == 1;
  if (span <= kMostCopied && (one_row || span / kWorthCopying <= payload)) {
    std::vector<std::byte> bytes(span);
    KVTRIAGE_RETURN_IF_ERROR(copier.ToHost(bytes, view.base));
    TensorView copy = view;
    copy.base = bytes.data();
    Append(copy, values);
    return absl::OkStatus();
  }
  if (one_row) {
    return Error(ErrorReason::kUnsupported, "inputs", "elements of a row lie too far apart")
        .Got(span)
        .Limit(kMostCopied);
  }
  const bool by_row = view.rows > 1;
  for (uint32_t i = 0; i < (by_row ? view.rows : view.heads); ++i) {
    TensorView part = view;
    (by_row ? part.rows : part.heads) = 1;
    part.base += i * (by_row ? view.row_stride : view.head_stride);
    KVTRIAGE_RETURN_IF_ERROR(AppendFrom(copier, part, values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<float>> NewestRows(const TensorView& view, uint32_t rows,
                                              DeviceCopier* copier) {
  std::vector<float> values;
  if (!view || rows == 0 || view.heads == 0 || view.elems == 0) return values;
  TensorView newest = view;
  newest.base += (view.rows - rows) * view.row_stride;
  newest.rows = rows;
  values.reserve(uint64_t{rows} * view.heads * view.elems);
  if (copier == nullptr) {
    Append(newest, values);
  } else {
    KVTRIAGE_RETURN_IF_ERROR(AppendFrom(*copier, newest, values));
  }
  return values;
}

}  // namespace kvtriage
