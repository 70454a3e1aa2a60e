// Rows of a tensor as host numbers, wherever the tensor lies.
#ifndef KVTRIAGE_SERVICE_ENGINE_READ_ROWS_H_
#define KVTRIAGE_SERVICE_ENGINE_READ_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/views.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

// The newest `rows` rows of a view, [rows][heads][elems]; none of a view that was not given.
// Through `copier`, or directly (null) from host memory. UNSUPPORTED: a device's row whose elements
// reach over more than 64 MiB; and what the copier says.
absl::StatusOr<std::vector<float>> NewestRows(const TensorView& view, uint32_t rows,
                                              DeviceCopier* copier);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_READ_ROWS_H_
