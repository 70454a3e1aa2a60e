// A dense tensor at its real address.
#ifndef KVTRIAGE_SERVICE_ENGINE_PLAN_TENSOR_H_
#define KVTRIAGE_SERVICE_ENGINE_PLAN_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/engine/pin_set.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

struct ResolvedTensor {
  const std::byte* base = nullptr;  // null = not given
  TensorSpec spec;

  explicit operator bool() const { return base != nullptr; }
  // Rows [first_row, first_row + rows) of one layer.
  TensorView Layer(size_t layer, uint32_t first_row, uint32_t rows) const;
};

// MEMORY_UNKNOWN, GEOMETRY_OVERFLOW, RANGE_OUT_OF_REGION; `field` names the tensor.
absl::StatusOr<ResolvedTensor> ResolveTensor(SessionMemory& memory, const TensorSpec& tensor,
                                             std::string_view field, PinSet& pins);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PLAN_TENSOR_H_
