// Random moves of rows with the bytes that they have to leave, made by plain gather-then-write.
#ifndef KVTRIAGE_TESTS_SUPPORT_RANDOM_MOVE_H_
#define KVTRIAGE_TESTS_SUPPORT_RANDOM_MOVE_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kvtriage/kernels/compact.h"

namespace kvtriage {

std::vector<std::byte> RandomBytes(size_t size, std::mt19937& random);

// Ascending rows below `rows`: a random share, sometimes with all rows of a prefix.
std::vector<int32_t> RandomKept(uint32_t rows, std::mt19937& random);

// Does the move byte by byte; `from` and `to` are offsets of the views' bases into the buffers.
// Returns the bytes written.
uint64_t MoveByHand(const MoveRequest& request, bool in_place, std::span<const std::byte> source,
                    uint64_t from, std::vector<std::byte>& target, uint64_t to);

// One move of any geometry: blocks, strides, gaps, opaque and elements of every size, in place or
// to a copy. Not to be moved itself: the request points into it.
struct RandomMove {
  RandomMove(uint32_t seed, uint32_t most_rows);
  RandomMove(const RandomMove&) = delete;
  RandomMove& operator=(const RandomMove&) = delete;

  bool in_place;
  uint64_t shift;                         // of the views' bases in their buffers
  std::vector<std::byte> source, target;  // buffers before; in place the target is the source
  std::vector<std::byte> right;           // the target afterwards
  uint64_t bytes_written;
  MoveRequest request;  // without bases: they are for the caller to set

 private:
  std::vector<std::vector<int32_t>> kept_;
  std::vector<int32_t> table_, to_table_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_RANDOM_MOVE_H_
