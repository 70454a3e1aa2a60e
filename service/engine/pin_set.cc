#include "service/engine/pin_set.h"

#include <utility>

#include "kernels/core/error.h"
#include "service/memory/memory_unknown.h"

namespace kvtriage {

absl::StatusOr<const RegionPin*> PinSet::Pin(SessionMemory& memory, uint64_t region_id,
                                             std::string_view field) {
  const auto found = pins_.find(region_id);
  if (found != pins_.end()) return &found->second;
  absl::StatusOr<RegionPin> pin = memory.Pin(region_id);
  if (!pin.ok()) return MemoryUnknown(field);
  if (pin->memory() != device_) {
    return absl::Status(
        Error(ErrorReason::kMixedMemory, field, "does not lie on the device of the call's cache"));
  }
  return &pins_.emplace(region_id, *std::move(pin)).first->second;
}

}  // namespace kvtriage
