// RowSource and single-layer tensors of the BlendService.
#ifndef KVTRIAGE_SERVICE_VALIDATE_ROW_SOURCE_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_ROW_SOURCE_PROTO_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kvtriage/v1/blend.pb.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

// The most a row may have.
struct RowShape {
  uint32_t heads = 0, elems = 0;
};

// Fields are relative ("tensor.rows"). `required` = an absent source is FIELD_MISSING.
absl::Status ParseRowSource(const v1::RowSource& source, bool required, const RowShape& most,
                            RowSourceSpec& spec);

// A tensor with one layer.
absl::StatusOr<TensorSpec> ParseOneLayer(const v1::Tensor& tensor, const RowShape& most);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_ROW_SOURCE_PROTO_H_
