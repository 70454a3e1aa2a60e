// Pure geometry of views: how far they reach, whether one overlaps itself, whether two share a
// byte. Numbers come from clients, so nothing here may wrap.
#ifndef KVTRIAGE_SERVICE_POLICY_VIEW_GEOMETRY_H_
#define KVTRIAGE_SERVICE_POLICY_VIEW_GEOMETRY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/policy/cache_spec.h"

namespace kvtriage {

// Bytes from the first byte of (0,0,0,0) to one past the last byte of the last element. All extents
// > 0. GEOMETRY_OVERFLOW when it does not fit 63 bits.
absl::StatusOr<uint64_t> ViewSpan(const ViewLayout& layout);
absl::StatusOr<uint64_t> TensorSpan(const TensorSpec& tensor);

// Whether the view does not overlap itself: axes with extent > 1 sorted by stride, each stride at
// least the bytes covered by everything inside it. The innermost unit is the contiguous row, or one
// element when elements are strided. VIEW_NOT_NESTED otherwise.
absl::Status CheckNested(const ViewLayout& layout);

// Whether two views may share a byte. Offsets are from one common origin (the allocation, not the
// region). Exact when both have the same axes (stride and extent), else it errs towards true; at
// most 16 digit paths. Both views are nested.
bool ViewsAlias(uint64_t offset_a, const ViewLayout& a, uint64_t offset_b, const ViewLayout& b);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_VIEW_GEOMETRY_H_
