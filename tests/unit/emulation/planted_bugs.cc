// Small kernels with one planted bug each.   planted_bugs BUG SEED
// Exit code: 0 right result, 1 wrong result; else whoever stopped it (emulator, sanitizer).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/simt.h"
#include "kernels/emulation/emulation.h"

namespace kvtriage {
namespace {

using simt::Load;
using simt::Shared;
using simt::SharedMemory;
using simt::Store;
using simt::SyncThreads;
using simt::ThreadX;
using simt::Vec16;

// Each block reverses its part of the array through shared memory.
bool ReverseIsRight(const std::string& bug) {
  const uint32_t threads = 128, blocks = 2;
  std::vector<uint32_t> in(threads * blocks), out(in.size());
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = i;
  emulation::RunGrid(
      {.blocks_x = blocks, .threads = threads, .shared_bytes = threads * sizeof(uint32_t)}, [&] {
        const Shared<uint32_t> tile(SharedMemory(0));
        const uint32_t i = ThreadX(), first = simt::BlockX() * threads;
        tile[i + (bug == "off-by-one" ? 1 : 0)] = Load(&in[first + i]);
        if (bug == "divergent-barrier") {
          if (i < 40) SyncThreads();
        } else if (bug != "missing-barrier") {
          SyncThreads();
        }
        Store(&out[first + i], tile[threads - 1 - i]);
      });
  for (uint32_t i = 0; i < in.size(); ++i) {
    if (out[i] != in[i / threads * threads + threads - 1 - i % threads]) return false;
  }
  return true;
}

// The same through asynchronous copies.
bool AsyncReverseIsRight(const std::string& bug) {
  const uint32_t threads = 128;
  std::vector<Vec16> in(threads), out(threads);
  for (uint32_t i = 0; i < threads; ++i) in[i] = {i, i, i, i};
  emulation::RunGrid({.threads = threads, .shared_bytes = threads * sizeof(Vec16)}, [&] {
    const Shared<Vec16> tile(SharedMemory(0));
    const uint32_t i = ThreadX();
    simt::AsyncCopy16(tile.data() + i, &in[i]);
    simt::AsyncCommit();
    if (bug != "missing-wait") simt::AsyncWait<0>();
    SyncThreads();
    Store(&out[i], tile[threads - 1 - i]);
  });
  for (uint32_t i = 0; i < threads; ++i) {
    if (out[i].x != in[threads - 1 - i].x) return false;
  }
  return true;
}

// Rows move forward in place, a tile at a time: one block does all tiles in order. Planted: each
// tile gets a block of its own without order between them; or no barrier between reads and writes.
bool MoveIsRight(const std::string& bug) {
  const uint32_t rows = 200, vectors = 16, tile = 16;
  std::mt19937 random(3);
  std::vector<uint32_t> kept;
  for (uint32_t row = 0; row < rows; ++row) {
    if (random() % 2 == 0) kept.push_back(row);
  }
  std::vector<Vec16> cache(rows * vectors);
  for (uint32_t i = 0; i < cache.size(); ++i) cache[i] = {i / vectors, i % vectors, 0, 0};
  const bool unordered = bug == "unordered-blocks";
  const auto count = static_cast<uint32_t>(kept.size()), tiles = (count + tile - 1) / tile;
  emulation::RunGrid(
      {.blocks_x = unordered ? tiles : 1, .threads = 64, .shared_bytes = tile * vectors * 16}, [&] {
        const Shared<Vec16> staged(SharedMemory(0));
        for (uint32_t t = unordered ? simt::BlockX() : 0; t < tiles; ++t) {
          const uint32_t first = t * tile, n = std::min(tile, count - first) * vectors;
          for (uint32_t i = ThreadX(); i < n; i += 64) {
            staged[i] = Load(&cache[kept[first + i / vectors] * vectors + i % vectors]);
          }
          if (bug != "missing-staging-barrier") SyncThreads();
          for (uint32_t i = ThreadX(); i < n; i += 64) {
            Store(&cache[first * vectors + i], staged[i]);
          }
          SyncThreads();
          if (unordered) break;
        }
      });
  for (uint32_t i = 0; i < count * vectors; ++i) {
    if (cache[i].x != kept[i / vectors] || cache[i].y != i % vectors) return false;
  }
  return true;
}

bool CountIsRight(const std::string& bug) {
  uint32_t threads = 0;
  emulation::RunGrid({.blocks_x = 2, .threads = 64}, [&] {
    if (bug == "plain-add") {
      threads += 1;
    } else {
      simt::AtomicAdd(&threads, 1u);
    }
  });
  return threads == 128;
}

int Run(const std::string& bug, uint64_t seed) {
  emulation::SetOptions({.seed = seed});
  const bool right =
      ReverseIsRight(bug) && AsyncReverseIsRight(bug) && MoveIsRight(bug) && CountIsRight(bug);
  std::printf("%s, seed %llu: %s result\n", bug.c_str(), static_cast<unsigned long long>(seed),
              right ? "right" : "wrong");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace kvtriage

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return kvtriage::Run(argv[1], std::strtoull(argv[2], nullptr, 10));
}
