// The pins of one job: each region once, whatever the number of views in it.
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
  // MEMORY_UNKNOWN with `field`. The pointer is good as long as the set.
  absl::StatusOr<const RegionPin*> Pin(SessionMemory& memory, uint64_t region_id,
                                       std::string_view field);

 private:
  std::map<uint64_t, RegionPin> pins_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_PIN_SET_H_
