// One emulated block: its threads, warps, barriers and shared memory.
#ifndef KVTRIAGE_KERNELS_EMULATION_BLOCK_H_
#define KVTRIAGE_KERNELS_EMULATION_BLOCK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/emulation/access_log.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/fiber.h"
#include "kernels/emulation/instructions.h"

namespace kvtriage::emulation {

inline constexpr uint32_t kWarpLanes = 32;

// A cp.async that has been issued and has not landed.
struct PendingCopy {
  std::byte* to;
  const std::byte* from;
  uint32_t bytes;  // of 16; the others become 0
};

enum class ThreadState : uint8_t { kReady, kSpinning, kInWarp, kInBarrier, kEnded };

struct Block;

struct Thread {
  Block* block;
  uint32_t index, warp, lane;
  ThreadState state;
  uint32_t barrier;                              // in which one, when kInBarrier
  const char* where;                             // last instruction that may wait, for reports
  uint64_t sent, received;                       // operands of shuffles, votes, reductions
  uint32_t source;                               // lane that a shuffle reads
  const void* operands;                          // of mma and ldmatrix, on the thread's stack
  std::vector<std::vector<PendingCopy>> groups;  // committed, oldest first
  std::vector<PendingCopy> open_group;
  Fiber fiber;
};

// Lanes that wait for each other in one instruction. Disjoint parts of a warp may meet side by
// side.
struct Meeting {
  uint32_t mask, arrived;
  const char* instruction;
  uint8_t parity;  // of the tag that it orders memory by
};

struct Warp {
  uint32_t live;  // lanes that have not ended
  std::vector<Meeting> meetings;
  char tags[2];  // happens-before edges, used in turn: see Barrier
  uint8_t parity;
  AccessLog accesses;
};

struct Barrier {
  uint32_t arrived, expected;
  // Threads that leave one round and threads that arrive for the next must not meet in one tag: an
  // early bird's writes would count as ordered before a late leaver's reads. Two tags are enough,
  // as nobody can be two rounds ahead.
  char tags[2];
  uint8_t parity;
};

struct Block {
  Index3 index, grid;
  const std::function<void()>* body;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<Barrier, 16> barriers;
  std::byte* shared;
  size_t shared_bytes;
  std::unique_ptr<std::byte[]> shared_allocation;
  uint32_t alive;
  char start_tag;
  Counters* counters;  // of the host thread that runs the block

  // Where threads of a grid's blocks stand when they end, so that the launch comes after them.
  char* end_tag;
};

// The emulated thread that runs now on this host thread; null outside of grids.
extern thread_local Thread* current;

// Says what broke and where; ends the process.
[[noreturn]] void Fail(const char* message);

std::unique_ptr<Block> MakeBlock(const GridShape& shape, Index3 index,
                                 const std::function<void()>& body, StackPool& stacks,
                                 size_t first_stack, Counters& counters, char* end_tag);
void ReleaseBlock(Block& block);

enum class Sweep { kEnded, kProgress, kOnlySpins };

// Runs every ready thread until it waits or ends, in the order of `order` (0 .. threads-1), which
// is shuffled first if there is a `random`. Fails when no thread can go on.
Sweep SweepBlock(Block& block, std::vector<uint32_t>& order, std::minstd_rand* random);

// Lets the waiting threads of a barrier go on.
void OpenBarrier(Block& block, uint32_t barrier);

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_BLOCK_H_
