// Rows of K or V of one layer: a dense tensor or pages of a cache.
#ifndef KVTRIAGE_SERVICE_ENGINE_ROW_SOURCE_H_
#define KVTRIAGE_SERVICE_ENGINE_ROW_SOURCE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/divergence.h"
#include "service/engine/pin_set.h"
#include "service/policy/blend_spec.h"

namespace kvtriage {

// Resolves a source that must hold all of `rows` (absolute, ascending, not empty). `name` ("fresh",
// "cached", "gather.from") begins the fields of errors, which recompute.h lists. The result points
// into `source`.
absl::StatusOr<DivergenceRows> ResolveRows(SessionMemory& memory, const RowSourceSpec& source,
                                           std::span<const int32_t> rows, std::string_view name,
                                           PinSet& pins);

// Where it lies; the host's when the source is not known. Any thread.
DeviceIndex DeviceOf(SessionMemory& memory, const RowSourceSpec& source);

// Bytes of one row over all heads; 0 when the source is not known. Any thread.
uint64_t RowBytes(SessionMemory& memory, const RowSourceSpec& source);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ROW_SOURCE_H_
