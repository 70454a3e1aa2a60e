// The pins of one job: each region once, whatever the number of views in it, all on one device.
#ifndef KVTRIAGE_SERVICE_ENGINE_PIN_SET_H_
#define KVTRIAGE_SERVICE_ENGINE_PIN_SET_H_

#include <cstdint>
#include <map>
#include <string_view>

#include "absl/status/statusor.h"
#include "service/memory/session_memory.h"

namespace kvtriage {

class PinSet {
 public:
  // `device`: where the job runs.
  explicit PinSet(DeviceIndex device = kHostMemory) : device_(device) {}

  // MEMORY_UNKNOWN and MIXED_MEMORY (the region lies elsewhere) with `field`. The pointer is good
  // as long as the set.
  absl::StatusOr<const RegionPin*> Pin(SessionMemory& memory, uint64_t region_id,
                                       std::string_view field);

 private:
  DeviceIndex device_;
  std::map<uint64_t, RegionPin> pins_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PIN_SET_H_
