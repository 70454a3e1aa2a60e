// What the running emulated thread may ask for; simt_host.h dresses it up for kernels. Meanings are
// those of the PTX instruction of the same name (PTX ISA 8.x).
#ifndef KVTRIAGE_KERNELS_EMULATION_INSTRUCTIONS_H_
#define KVTRIAGE_KERNELS_EMULATION_INSTRUCTIONS_H_

#include <cstddef>
#include <cstdint>

namespace kvtriage::emulation {

struct Index3 {
  uint32_t x, y, z;
};

uint32_t ThreadIndex();
Index3 BlockIndex();
Index3 GridSize();
uint32_t BlockThreads();
std::byte* SharedMemory();

// barrier 0 with all threads is __syncthreads; 1..15 are named barriers of `threads` threads.
void BlockBarrier(uint32_t barrier, uint32_t threads);
void WarpBarrier(uint32_t mask);

enum class Shuffle { kXor, kDown, kUp, kIndex };
uint64_t ShuffleBits(uint32_t mask, uint64_t bits, Shuffle mode, uint32_t argument, uint32_t width);
uint32_t BallotBits(uint32_t mask, bool predicate);
uint32_t MatchAnyBits(uint32_t mask, uint64_t bits);
enum class Reduction { kAdd, kMin, kMax, kAnd, kOr, kXor };
uint32_t ReduceBits(uint32_t mask, uint32_t value, Reduction operation);

enum class MmaType { kBf16, kF16 };
void Mma16816(MmaType type, float* d, const uint32_t* a, const uint32_t* b);
// `matrices` is 1, 2 or 4; lane l's row address counts when l < 8 * matrices.
void LoadMatrices(uint32_t* r, uint32_t matrices, bool transposed, const void* row);

// 16 bytes of shared memory: the first `bytes` come from `global`, the others become 0.
void CopyAsync16(void* shared, const void* global, uint32_t bytes);
void CommitCopies();
void WaitCopies(uint32_t pending_groups);

void PauseSpin();

enum class Access { kGlobalLoad, kGlobalStore, kShared };
// Counts one lane's access; accesses of a warp belong together when they come from the same place
// in the code (the caller's return address) and are each lane's n-th there since the warp last met.
void RecordAccess(Access access, const void* address, uint32_t width);
bool CountsAccesses();

}  // namespace kvtriage::emulation

#endif  // KVTRIAGE_KERNELS_EMULATION_INSTRUCTIONS_H_
