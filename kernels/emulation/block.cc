#include "kernels/emulation/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/emulation/async_copy.h"
#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {
namespace {

constexpr size_t kRedZone = 128;

size_t RoundedShared(size_t bytes) { return (bytes + kRedZone - 1) / kRedZone * kRedZone; }

void EndThread(Thread& thread) {
  Block& block = *thread.block;
  LandAtExit(thread);
  Release(block.end_tag);
  thread.state = ThreadState::kEnded;
  --block.alive;
  Warp& warp = block.warps[thread.warp];
  warp.live &= ~(1u << thread.lane);
  if (warp.live == 0) warp.accesses.Close(*block.counters);
}

void ThreadMain(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  Acquire(&thread.block->start_tag);
  (*thread.block->body)();
  EndThread(thread);
}

void PlaceShared(Block& block, size_t bytes) {
  const size_t rounded = RoundedShared(bytes);
  const size_t total = rounded + 3 * kRedZone;
  block.shared_allocation = std::make_unique<std::byte[]>(total);
  // Every float reads as NaN until it is written.
  std::memset(block.shared_allocation.get(), 0xFF, total);
  const auto raw = reinterpret_cast<uintptr_t>(block.shared_allocation.get());
  block.shared = block.shared_allocation.get() + (kRedZone - raw % kRedZone) + kRedZone;
  block.shared_bytes = bytes;
  Poison(block.shared - kRedZone, kRedZone);
  Poison(block.shared + bytes, rounded - bytes + (rounded == bytes ? kRedZone : 0));
}

void FailIfStuck(const Block& block) {
  std::fprintf(stderr, "simt: deadlock in block %u,%u,%u:", block.index.x, block.index.y,
               block.index.z);
  int shown = 0;
  for (const Thread& thread : block.threads) {
    if (thread.state == ThreadState::kEnded) continue;
    if (++shown > 6) break;
    std::fprintf(stderr, " thread %u in %s", thread.index, thread.where);
  }
  std::fprintf(stderr, "\n");
  std::_Exit(kFailureExit);
}

// After a thread ended: a barrier of the whole block can no longer be reached by all.
void FailIfBarrierMissed(Thread& thread) {
  const Barrier& barrier = thread.block->barriers[0];
  if (barrier.arrived == 0) return;
  current = &thread;
  Fail("a thread of the block has ended while others wait in a barrier for it");
}

}  // namespace

thread_local Thread* current = nullptr;

void Fail(const char* message) {
  if (current == nullptr) {
    std::fprintf(stderr, "simt: %s\n", message);
  } else {
    const Index3& at = current->block->index;
    std::fprintf(stderr, "simt: %s (block %u,%u,%u thread %u)\n", message, at.x, at.y, at.z,
                 current->index);
  }
  std::_Exit(kFailureExit);
}

uint32_t ThreadIndex() { return current->index; }
Index3 BlockIndex() { return current->block->index; }
Index3 GridSize() { return current->block->grid; }
uint32_t BlockThreads() { return static_cast<uint32_t>(current->block->threads.size()); }
std::byte* SharedMemory() { return current->block->shared; }

std::unique_ptr<Block> MakeBlock(const GridShape& shape, Index3 index,
                                 const std::function<void()>& body, StackPool& stacks,
                                 size_t first_stack, Counters& counters, char* end_tag) {
  auto block = std::make_unique<Block>();
  block->index = index;
  block->grid = {shape.blocks_x, shape.blocks_y, shape.blocks_z};
  block->body = &body;
  block->threads = std::vector<Thread>(shape.threads);
  block->warps = std::vector<Warp>((shape.threads + kWarpLanes - 1) / kWarpLanes);
  block->alive = shape.threads;
  block->counters = &counters;
  block->end_tag = end_tag;
  PlaceShared(*block, shape.shared_bytes);
  Release(&block->start_tag);
  for (uint32_t i = 0; i < shape.threads; ++i) {
    Thread& thread = block->threads[i];
    thread.block = block.get();
    thread.index = i;
    thread.warp = i / kWarpLanes;
    thread.lane = i % kWarpLanes;
    thread.where = "its start";
    block->warps[thread.warp].live |= 1u << thread.lane;
    thread.fiber.Start(stacks.Get(first_stack + i), ThreadMain, &thread);
  }
  return block;
}

void ReleaseBlock(Block& block) {
  for (Thread& thread : block.threads) thread.fiber.Release();
  Unpoison(block.shared - kRedZone, RoundedShared(block.shared_bytes) + 2 * kRedZone);
}

void OpenBarrier(Block& block, uint32_t barrier) {
  block.barriers[barrier].arrived = 0;
  block.barriers[barrier].parity ^= 1;
  if (barrier == 0) {
    for (Warp& warp : block.warps) warp.accesses.Close(*block.counters);
  }
  for (Thread& thread : block.threads) {
    if (thread.state == ThreadState::kInBarrier && thread.barrier == barrier) {
      thread.state = ThreadState::kReady;
    }
  }
}

Sweep SweepBlock(Block& block, std::vector<uint32_t>& order, std::minstd_rand* random) {
  if (random != nullptr) std::shuffle(order.begin(), order.end(), *random);
  bool progress = false, spins = false;
  for (const uint32_t i : order) {
    Thread& thread = block.threads[i];
    if (thread.state == ThreadState::kSpinning) thread.state = ThreadState::kReady;
    if (thread.state != ThreadState::kReady) continue;
    ++block.counters->switches;
    current = &thread;
    thread.fiber.Resume();
    current = nullptr;
    (thread.state == ThreadState::kSpinning ? spins : progress) = true;
    if (thread.state == ThreadState::kEnded) FailIfBarrierMissed(thread);
  }
  if (block.alive == 0) return Sweep::kEnded;
  if (progress) return Sweep::kProgress;
  if (!spins) FailIfStuck(block);
  return Sweep::kOnlySpins;
}

}  // namespace kvtriage::emulation
