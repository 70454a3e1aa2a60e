// Rotary position embeddings. Channels [offset, offset + R) of a key turn, all others keep their
// bytes; pair j = (a, b) turned by th becomes (a cos th - b sin th, b cos th + a sin th). V is
// never touched.
//
// A stored key at position p is R(p f) k, so moving it to p' is one turn by (p' - p) f: exact for
// every kind of speeds, and right for YaRN, whose attention factor is in the stored key already.
#ifndef KVTRIAGE_KERNELS_ROTATE_H_
#define KVTRIAGE_KERNELS_ROTATE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kvtriage/kernels/views.h"

namespace kvtriage {

enum class RopePairing : uint8_t {
  kHalf = 1,         // channel j pairs with j + R/2
  kInterleaved = 2,  // channel 2j pairs with 2j + 1
};

enum class AngleMode : uint8_t {
  kExact = 1,      // (to - from) * f in float64
  kFp32Table = 2,  // fl32(to * f) - fl32(from * f): the angles of a model whose table is float32
};

// Rotary data of one layer.
struct Rope {
  RopePairing pairing = RopePairing::kHalf;
  uint32_t rotary_dim = 0;      // R, even; 0: nothing turns
  uint32_t offset = 0;          // first rotated channel; offset + R <= row_elems
  std::vector<double> speeds;   // f_j, R/2 of them (kernels/core/rope_speeds.h)
  double attention_factor = 1;  // YaRN: multiplies queries from before RoPE, nothing else
  // M-RoPE: how many pairs take their position from plane 0, 1 and 2; they add up to R/2. All 0:
  // one plane of positions.
  std::array<uint32_t, 3> sections{};

  bool multi_plane() const { return sections != std::array<uint32_t, 3>{}; }
  uint32_t planes() const { return multi_plane() ? 3 : 1; }
};

// Position of one row: one number, or three with M-RoPE (then the planes' sections).
using RowPosition = std::array<int64_t, 3>;
inline constexpr RowPosition AtPosition(int64_t position) { return {position, position, position}; }

// Cosines and sines (R/2 each) of the angles that turn a row from one position to another: angles
// and functions in float64, rounded to float32 once. Turning a row from before RoPE to position p
// is `from` = 0.
void TurnBetween(const Rope& rope, AngleMode mode, const RowPosition& from, const RowPosition& to,
                 std::span<float> cosines, std::span<float> sines);

// Turns one row of at least offset + R float32 channels in place; products and sums in float32.
void TurnRow(const Rope& rope, std::span<const float> cosines, std::span<const float> sines,
             float* row);

// Positions of rows 0, 1, 2, ...
struct RowPositions {
  uint64_t first = 0;             // row i is at first + i, when there is no list
  const int32_t* list = nullptr;  // one per row; of a rope with planes three lists, back to back
  uint32_t rows = 0;              // of the list

  RowPosition At(uint64_t row, bool multi_plane) const {
    if (list == nullptr) return AtPosition(static_cast<int64_t>(first + row));
    if (!multi_plane) return AtPosition(list[row]);
    return {list[row], list[uint64_t{rows} + row], list[uint64_t{2} * rows + row]};
  }
};

// Stored keys of layers that share a rope, turned in place. Row first_row + j of head h goes to
// position to.At(j). It comes from position from.At(j), or, where lists are given (one per layer
// and head, layer-major, `count` long), from.At(from_rows[list][j]): keys that have moved since.
// Rows that stay at their position keep every byte.
//
// An element is widened to float32, turned and rounded once to its type (a scale of fp8 rows drops
// out of a turn; what is too large for the type saturates); the bits depend on the
// row's numbers and positions only, not on the layout, the threads or the neighbours.
struct RotateRequest {
  std::vector<KvView> keys;
  SequenceRows rows;
  uint32_t first_row = 0, count = 0;
  const Rope* rope = nullptr;
  AngleMode mode = AngleMode::kExact;
  RowPositions from, to;
  std::vector<std::span<const int32_t>> from_rows;  // empty, or layers * heads
};

struct RotateResult {
  uint64_t bytes_written = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_ROTATE_H_
