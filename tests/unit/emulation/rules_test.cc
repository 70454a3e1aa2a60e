// A kernel that breaks a rule of the machine stops the process and is named.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/emulation/emulation.h"

namespace kvtriage {
namespace {

using emulation::RunGrid;

void ExpectStop(const emulation::GridShape& shape, void (*kernel)(), const char* report) {
  EXPECT_EXIT(RunGrid(shape, kernel), testing::ExitedWithCode(emulation::kFailureExit), report);
}

TEST(BrokenRules, BarrierThatSomeThreadsSkip) {
  ExpectStop(
      {.threads = 64},
      [] {
        if (simt::ThreadX() < 40) simt::SyncThreads();
      },
      "has ended while others wait|after one of its threads has ended");
}

TEST(BrokenRules, BarrierAfterAThreadLeft) {
  ExpectStop(
      {.threads = 32},
      [] {
        if (simt::ThreadX() != 0) simt::SyncThreads();
      },
      "thread .* has ended|threads has ended");
}

TEST(BrokenRules, WaitsThatNeverEnd) {
  ExpectStop(
      {.threads = 64},
      [] {
        if (simt::ThreadX() < 32) {
          simt::SyncThreads();
        } else {
          simt::SyncNamed(1, 64);
        }
      },
      "deadlock in block 0,0,0: thread 0 in __syncthreads");
  ExpectStop(
      {.threads = 1},
      [] {
        uint32_t never = 0;
        while (simt::LoadAcquire(&never) == 0) simt::SpinPause();
      },
      "spin wait is never satisfied");
}

TEST(BrokenRules, MasksThatDoNotFit) {
  ExpectStop(
      {.threads = 32}, [] { simt::SyncWarp(simt::ThreadX() == 0 ? 2u : ~0u); },
      "a lane is not in its own mask|different masks");
  ExpectStop(
      {.threads = 16}, [] { simt::SyncWarp(); }, "has ended or does not exist");
  ExpectStop(
      {.threads = 32},
      [] {
        if (simt::ThreadX() == 0) {
          simt::Ballot(~0u, true);
        } else {
          simt::SyncWarp();
        }
      },
      "different instructions");
  ExpectStop(
      {.threads = 32}, [] { simt::ShuffleFrom(0xFFFFu | 1u << simt::ThreadX(), 1, 31); },
      "outside of the mask");
}

TEST(BrokenRules, AddressesOfMatricesAndCopies) {
  ExpectStop(
      {.threads = 32, .shared_bytes = 1024},
      [] {
        uint32_t r[4];
        simt::LdMatrix<4>(r, simt::SharedMemory(simt::ThreadX() * 16 + 8));
      },
      "ldmatrix is not 16-byte aligned");
  ExpectStop(
      {.threads = 32, .shared_bytes = 31 * 16},
      [] {
        uint32_t r[4];
        simt::LdMatrix<4>(r, simt::SharedMemory(simt::ThreadX() * 16));
      },
      "outside of shared memory .block 0,0,0 thread 31.");
  ExpectStop(
      {.threads = 1, .shared_bytes = 16},
      [] {
        alignas(16) static const float source[8] = {};
        simt::AsyncCopy16(simt::SharedMemory(0), source + 1);
      },
      "cp.async address is not 16-byte aligned");
  ExpectStop(
      {.threads = 1, .shared_bytes = 16},
      [] {
        alignas(16) static const float source[4] = {};
        simt::AsyncCopy16(simt::SharedMemory(0), source);
      },
      "has not committed");
}

TEST(BrokenRules, ShapesOfGrids) {
  ExpectStop(
      {.threads = 1025}, [] {}, "1 to 1024 threads");
  ExpectStop(
      {.blocks_x = 0}, [] {}, "1 to 2.31 blocks");
}

}  // namespace
}  // namespace kvtriage
