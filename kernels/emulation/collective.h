// What the lanes of a warp do together.
#ifndef KVTRIAGE_KERNELS_EMULATION_COLLECTIVE_H_
#define KVTRIAGE_KERNELS_EMULATION_COLLECTIVE_H_

#include <cstdint>

#include "kernels/emulation/block.h"
#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {

enum class Orders { kNothing, kMemory };

// The current thread arrives: its meeting, new when it is the first.
Meeting& Arrive(Warp& warp, uint32_t mask, const char* instruction);

// Ends the warp's complete meeting of the lanes of `mask` and wakes them.
void Part(Block& block, Warp& warp, uint32_t mask, Thread* lanes);

// Arrives at `instruction` with the lanes of `mask`. The last to arrive runs `together` on the
// warp's lanes (an array of up to 32 threads) and wakes the others. kMemory: what each lane did
// before comes before what any of them does after.
template <class Together>
void MeetLanes(uint32_t mask, const char* instruction, Orders orders, Together together) {
  Thread& thread = *current;
  Block& block = *thread.block;
  Warp& warp = block.warps[thread.warp];
  Meeting& meeting = Arrive(warp, mask, instruction);
  char* tag = &warp.tags[meeting.parity];
  if (orders == Orders::kMemory) Release(tag);
  if (meeting.arrived == mask) {
    Thread* lanes = &block.threads[uint64_t{thread.warp} * kWarpLanes];
    together(lanes);
    Part(block, warp, mask, lanes);
  } else {
    thread.state = ThreadState::kInWarp;
    thread.fiber.Suspend();
  }
  if (orders == Orders::kMemory) Acquire(tag);
}

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_COLLECTIVE_H_
