// Runs CUDA kernels on the CPU, for tests: every CUDA thread is a fiber, blocks are interleaved,
// and what a kernel may not rely on (order of threads and blocks, early landing of asynchronous
// copies, zeroed shared memory) is made as unkind as a seed allows. Kernels reach it through
// kernels/cuda/simt.h.
//
// A kernel that breaks a rule of the machine (a barrier that not all threads reach, a mask that
// names an exited lane, a misaligned ldmatrix, a wait that nobody ends) stops the process: one line
// on stderr naming block and thread, exit code kFailureExit.
//
// What it cannot show: wrong memory scopes, register pressure, the rounding of real tensor cores,
// hangs that need true concurrency.
#ifndef KVTRIAGE_KERNELS_EMULATION_EMULATION_H_
#define KVTRIAGE_KERNELS_EMULATION_EMULATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace kvtriage::emulation {

inline constexpr int kFailureExit = 86;

struct Options {
  uint64_t seed = 0;          // 0: threads and blocks in order; else a shuffled order that it fixes
  uint32_t host_threads = 1;  // threads of the host that run blocks side by side
  uint32_t resident_blocks =
      4;  // blocks interleaved on one host thread; 1 hides hazards between blocks
  bool count_accesses = false;  // fill the access counters (slow); the others are always exact
};

// For all grids that start afterwards. Not while a grid runs.
void SetOptions(const Options& options);
Options GetOptions();

// Exact, whatever the number of host threads. Width classes: 1, 2, 4, 8 and 16 bytes.
struct Counters {
  uint64_t grids = 0;
  uint64_t mma = 0;                    // matrix instructions, one per warp
  uint64_t ldmatrix = 0;               // ditto
  uint64_t ldmatrix_extra_passes = 0;  // beyond one per 8x8 matrix; 0 = free of bank conflicts
  uint64_t async_copy_bytes = 0;       // read from global memory by cp.async
  uint64_t block_barriers = 0;         // one per block and barrier
  uint64_t switches = 0;               // fiber switches: what the emulator itself costs
  // With count_accesses, of simt::Load and simt::Store:
  std::array<uint64_t, 5> load_bytes{}, store_bytes{};  // by width class
  uint64_t load_requests = 0, load_sectors = 0;  // warp-wide requests; 32-byte sectors they touch
  uint64_t store_requests = 0, store_sectors = 0;
  // With count_accesses, of simt::Shared:
  uint64_t shared_requests = 0;
  uint64_t shared_extra_passes = 0;  // beyond the least for the width; 0 = free of bank conflicts

  uint64_t global_load_bytes() const;  // plain loads and asynchronous copies
  uint64_t global_store_bytes() const;
  Counters& operator+=(const Counters& other);
};

// Of all grids that ended since the last call.
Counters TakeCounters();

struct GridShape {
  uint32_t blocks_x = 1, blocks_y = 1, blocks_z = 1;
  uint32_t threads = 1;  // per block, 1..1024
  size_t shared_bytes =
      0;  // dynamic shared memory per block, exact: one byte further is out of bounds
};

// Runs `thread` once as every thread of every block; returns when all have ended. One grid at a
// time and host thread; grids of different host threads are independent.
void RunGrid(const GridShape& shape, const std::function<void()>& thread);

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_EMULATION_H_
