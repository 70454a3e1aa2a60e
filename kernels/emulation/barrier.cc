#include "kernels/emulation/block.h"
#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {

void BlockBarrier(uint32_t number, uint32_t threads) {
  Thread& thread = *current;
  Block& block = *thread.block;
  if (number >= block.barriers.size()) Fail("a block has barriers 0 to 15");
  if (threads != block.threads.size() && (threads == 0 || threads % kWarpLanes != 0)) {
    Fail("a named barrier is for whole warps");
  }
  Barrier& barrier = block.barriers[number];
  if (number == 0 && block.alive != block.threads.size()) {
    Fail("a barrier of the block after one of its threads has ended");
  }
  if (barrier.arrived != 0 && barrier.expected != threads) {
    Fail("threads expect different numbers of threads in one barrier");
  }
  barrier.expected = threads;
  thread.where = number == 0 ? "__syncthreads" : "a named barrier";
  char* tag = &barrier.tags[barrier.parity];
  Release(tag);
  if (++barrier.arrived == threads) {
    ++block.counters->block_barriers;
    OpenBarrier(block, number);
  } else {
    thread.state = ThreadState::kInBarrier;
    thread.barrier = number;
    thread.fiber.Suspend();
  }
  Acquire(tag);
}

void PauseSpin() {
  current->where = "a spin wait";
  current->state = ThreadState::kSpinning;
  current->fiber.Suspend();
}

}  // namespace kvtriage::emulation
