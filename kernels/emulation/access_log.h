// Puts the accesses of a warp's lanes back together into the requests that a GPU would make of
// them, and counts what those cost: sectors of global memory, passes over the banks of shared
// memory.
#ifndef KVTRIAGE_KERNELS_EMULATION_ACCESS_LOG_H_
#define KVTRIAGE_KERNELS_EMULATION_ACCESS_LOG_H_

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "kernels/emulation/emulation.h"
#include "kernels/emulation/instructions.h"

namespace kvtriage::emulation {

class AccessLog {
 public:
  // One lane's access of `width` bytes at a place in the code. Each lane's n-th access there since
  // the last Close belongs to the same request, which is counted once all lanes of `live` made it.
  void Record(const void* place, Access access, uint32_t lane, uint32_t live, const void* address,
              uint32_t width, Counters& counters);
  // Counts what is incomplete (lanes that took another branch) and starts anew: the warp has met.
  void Close(Counters& counters);

 private:
  struct Request {
    uint32_t lanes = 0, width = 0;
    std::array<uintptr_t, 32> addresses;
  };
  struct Place {
    Access access;
    std::array<uint64_t, 32> made{};  // accesses of each lane
    std::deque<Request> open;         // request first_open and those behind it
    uint64_t first_open = 0;
  };

  static void Count(Access access, const Request& request, Counters& counters);

  std::unordered_map<const void*, Place> places_;
};

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_ACCESS_LOG_H_
