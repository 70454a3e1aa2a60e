// Where the host threads of the emulator leave what they counted.
#ifndef KVTRIAGE_KERNELS_EMULATION_COUNTERS_H_
#define KVTRIAGE_KERNELS_EMULATION_COUNTERS_H_

#include "kernels/emulation/emulation.h"

namespace kvtriage::emulation {

// Thread-safe.
void AddCounters(const Counters& counters);

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_COUNTERS_H_
