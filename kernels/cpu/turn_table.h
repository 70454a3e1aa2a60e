// Cosines and sines of a slice of the rows that a request rotates. Sines cost a hundred times more
// than the rotation of an element, so rows that turn by the same angles share them: all heads and
// layers where the positions are common, and in exact mode every row with the same distance.
#ifndef KVTRIAGE_KERNELS_CPU_TURN_TABLE_H_
#define KVTRIAGE_KERNELS_CPU_TURN_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_team.h"
#include "kvtriage/kernels/rotate.h"

namespace kvtriage {

class TurnTable {
 public:
  // A row that stays where it is.
  static constexpr uint32_t kStays = 0xFFFFFFFF;

  // How many rows to take at a time, so that a table stays small.
  static uint32_t SliceRows(const RotateRequest& request);

  // For rows [begin, end) of 0 .. request.count.
  TurnTable(const RotateRequest& request, uint32_t begin, uint32_t end, ThreadTeam& team);

  // Per row of the slice: the number of its turn. `list` = layer * heads + head.
  const uint32_t* TurnsOf(size_t list) const {
    return turns_.data() + (lists_ == 1 ? 0 : list) * rows_;
  }
  // R/2 cosines, then R/2 sines.
  const float* Numbers(uint32_t turn) const { return numbers_.data() + uint64_t{turn} * floats_; }

 private:
  void Number(const RotateRequest& request, uint32_t begin);
  void Compute(const RotateRequest& request, ThreadTeam& team);

  const size_t lists_, rows_;
  const uint64_t floats_;  // of one turn
  std::vector<uint32_t> turns_;
  std::vector<std::pair<RowPosition, RowPosition>> ends_;  // of every turn: from, to
  std::vector<float> numbers_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CPU_TURN_TABLE_H_
