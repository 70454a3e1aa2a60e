// One head's share of a move, and the ways to do it. A head is never split further: rows of one
// head must move in ascending order, because in place a row's destination may be another's source.
#ifndef KVTRIAGE_KERNELS_CPU_HEAD_MOVE_H_
#define KVTRIAGE_KERNELS_CPU_HEAD_MOVE_H_

#include <cstdint>
#include <span>

#include "kvtriage/kernels/compact.h"

namespace kvtriage {

struct HeadMove {
  const MoveRequest* request = nullptr;
  uint32_t head = 0;
  // Rows [first, kept.size()) move; those before are in place.
  uint32_t first = 0;
  // Stores may go past the caches: the move is larger than they are.
  bool stream = false;

  std::span<const int32_t> kept() const { return request->kept[head]; }
};

// Contiguous rows of any size, on both sides.
void MoveContiguousRows(const HeadMove& move);

// Rows whose elements have neighbouring slots in the destination (transposed keys), from any
// source.
void MoveToLines(const HeadMove& move);

// Rows of any strides, element by element.
void MoveElements(const HeadMove& move);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_HEAD_MOVE_H_
