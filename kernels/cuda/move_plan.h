// The plan of a launch that moves rows (compact.cuh): streams, tiles and their order.
#ifndef KVTRIAGE_KERNELS_CUDA_MOVE_PLAN_H_
#define KVTRIAGE_KERNELS_CUDA_MOVE_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/compact_launch.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// How rows are walked. Moves of one shape share a launch.
struct WordShape {
  uint32_t word_bytes, row_words;
  bool operator<(const WordShape& other) const {
    return word_bytes != other.word_bytes ? word_bytes < other.word_bytes
                                          : row_words < other.row_words;
  }
};

// The widest words that both views allow; of rows whose elements lie apart, the element.
WordShape ShapeOf(const KvView& from, const KvView& to);

// Rows of one head: put[j] of `to` becomes kept[j] of `from`; an empty list stands for 0, 1, 2, ...
struct HeadRows {
  const KvView& from;
  const SequenceRows& from_rows;
  std::span<const int32_t> kept;
  const KvView& to;
  const SequenceRows& to_rows;
  std::span<const int32_t> put;
  uint32_t head, rows;
  bool in_place;      // `to` is `from`: writes wait for reads
  uint32_t stay = 0;  // rows at the start that are where they go
};

class MovePlan {
 public:
  explicit MovePlan(WordShape shape);

  absl::Status Add(const HeadRows& rows, DeviceInputs& inputs);
  // Starts the kernel; nothing was written before.
  absl::Status Launch(Workspace& workspace) const;

 private:
  std::vector<MoveTile> TicketOrder() const;

  const WordShape shape_;
  const uint32_t tile_rows_;
  std::vector<MoveStream> streams_;
  std::vector<uint32_t> first_moving_;  // per stream: its first tile in which a row moves
  uint32_t tiles_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_MOVE_PLAN_H_
