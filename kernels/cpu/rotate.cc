#include "kernels/cpu/rotate.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/core/checked_math.h"
#include "kernels/cpu/row_cursor.h"
#include "kernels/cpu/turn_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotate.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/narrow-inl.h"
#include "kernels/cpu/widen-inl.h"

#ifndef KVTRIAGE_KERNELS_CPU_ROTATE_ONCE_
#define KVTRIAGE_KERNELS_CPU_ROTATE_ONCE_
namespace kvtriage {

inline constexpr size_t kRunRows = 64;
inline constexpr size_t kMostChannels = 576;

// Neighbouring rows of one head in one block, all of which turn.
struct RotateRun {
  const ViewLayout& layout;
  const Rope& rope;
  std::byte* first;             // first rotated channel of the first row
  size_t rows;                  // at most kRunRows
  const float* const* numbers;  // per row: R/2 cosines, then R/2 sines
};

}  // namespace kvtriage
#endif  // KVTRIAGE_KERNELS_CPU_ROTATE_ONCE_

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {

// a, b turned by the angle of cosine c and sine s. No fused operations: targets without them have
// to give the same bits.
HWY_INLINE void Turn(V& a, V& b, V c, V s) {
  const V turned = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
  b = hn::Add(hn::Mul(b, c), hn::Mul(a, s));
  a = turned;
}

HWY_INLINE void TurnOne(float& a, float& b, float c, float s) {
  const float turned = a * c - b * s;
  b = b * c + a * s;
  a = turned;
}

// a[i], b[i] turned for `count` pairs.
HWY_INLINE void TurnPairs(float* a, float* b, const float* cosines, const float* sines,
                          size_t count) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    V x = hn::LoadU(d, a + i), y = hn::LoadU(d, b + i);
    Turn(x, y, hn::LoadU(d, cosines + i), hn::LoadU(d, sines + i));
    hn::StoreU(x, d, a + i);
    hn::StoreU(y, d, b + i);
  }
  for (; i < count; ++i) TurnOne(a[i], b[i], cosines[i], sines[i]);
}

HWY_INLINE void TurnInterleaved(float* row, const float* cosines, const float* sines,
                                size_t count) {
  const D d;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    V x, y;
    hn::LoadInterleaved2(d, row + 2 * i, x, y);
    Turn(x, y, hn::LoadU(d, cosines + i), hn::LoadU(d, sines + i));
    hn::StoreInterleaved2(x, y, d, row + 2 * i);
  }
  for (; i < count; ++i) TurnOne(row[2 * i], row[2 * i + 1], cosines[i], sines[i]);
}

// Rows whose channels are neighbours: row by row.
void RotateRows(const RotateRun& run) {
  const size_t channels = run.rope.rotary_dim, pairs = channels / 2;
  HWY_ALIGN float row[kMostChannels];
  for (size_t i = 0; i < run.rows; ++i) {
    std::byte* const at = run.first + i * run.layout.slot_stride;
    WidenElements(at, run.layout.dtype, channels, row);
    if (run.rope.pairing == RopePairing::kHalf) {
      TurnPairs(row, row + pairs, run.numbers[i], run.numbers[i] + pairs, pairs);
    } else {
      TurnInterleaved(row, run.numbers[i], run.numbers[i] + pairs, pairs);
    }
    NarrowElements(row, run.layout.dtype, channels, at);
  }
}

// Any other strides: pair by pair along the slots, because they are neighbours in memory where keys
// are stored transposed.
void RotateColumns(const RotateRun& run) {
  const ViewLayout& layout = run.layout;
  const bool half = run.rope.pairing == RopePairing::kHalf;
  const size_t pairs = run.rope.rotary_dim / 2;
  HWY_ALIGN float a[kRunRows], b[kRunRows], cosines[kRunRows], sines[kRunRows];
  for (size_t j = 0; j < pairs; ++j) {
    std::byte* const first = run.first + (half ? j : 2 * j) * layout.elem_stride;
    std::byte* const second = run.first + (half ? j + pairs : 2 * j + 1) * layout.elem_stride;
    WidenStrided(first, layout.slot_stride, layout.dtype, run.rows, a);
    WidenStrided(second, layout.slot_stride, layout.dtype, run.rows, b);
    for (size_t i = 0; i < run.rows; ++i) {
      cosines[i] = run.numbers[i][j];
      sines[i] = run.numbers[i][pairs + j];
    }
    TurnPairs(a, b, cosines, sines, run.rows);
    NarrowStrided(a, layout.dtype, run.rows, layout.slot_stride, first);
    NarrowStrided(b, layout.dtype, run.rows, layout.slot_stride, second);
  }
}

void RotateRunOf(const RotateRun& run) {
  if (run.layout.contiguous_rows()) return RotateRows(run);
  RotateColumns(run);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(RotateRunOf);

namespace {

constexpr uint32_t kItemRows = 512;

// Rows [begin, end) of a slice that starts with row `slice` of the request.
uint64_t RotateHead(const RotateRequest& request, const KvView& keys, uint32_t head,
                    const TurnTable& table, const uint32_t* turns, uint32_t slice, uint32_t begin,
                    uint32_t end) {
  RowCursor rows(keys, request.rows, head);
  const float* numbers[kRunRows];
  uint64_t turned = 0;
  for (uint32_t i = begin; i < end;) {
    const uint64_t row = uint64_t{request.first_row} + slice + i;
    const uint64_t most = std::min<uint64_t>({kRunRows, end - i, rows.RowsLeftInBlock(row)});
    size_t run = 0;
    while (run < most && turns[i + run] != TurnTable::kStays) {
      numbers[run] = table.Numbers(turns[i + run]);
      ++run;
    }
    if (run > 0) {
      std::byte* const first = rows.At(row) + request.rope->offset * keys.layout.elem_stride;
      HWY_DYNAMIC_DISPATCH(RotateRunOf)({keys.layout, *request.rope, first, run, numbers});
    }
    turned += run;
    i += static_cast<uint32_t>(std::max<size_t>(run, 1));
  }
  return turned;
}

}  // namespace

void RotateKeys(const RotateRequest& request, ThreadTeam& team, RotateResult& result) {
  if (request.keys.empty() || request.rope->rotary_dim == 0) return;
  const uint32_t heads = request.keys.front().layout.heads;
  const uint32_t slice_rows = TurnTable::SliceRows(request);
  std::atomic<uint64_t> bytes{0};
  for (uint32_t slice = 0; slice < request.count; slice += slice_rows) {
    const uint32_t rows = std::min(slice_rows, request.count - slice);
    const TurnTable table(request, slice, slice + rows, team);
    const size_t pieces = CeilDiv(rows, kItemRows);
    team.Run(request.keys.size() * heads * pieces, [&](size_t item, int) {
      const size_t list = item / pieces;
      const KvView& keys = request.keys[list / heads];
      const auto begin = static_cast<uint32_t>(item % pieces * kItemRows);
      const uint64_t turned =
          RotateHead(request, keys, static_cast<uint32_t>(list % heads), table, table.TurnsOf(list),
                     slice, begin, std::min(rows, begin + kItemRows));
      bytes += turned * request.rope->rotary_dim * ElementBytes(keys.layout.dtype);
    });
  }
  result.bytes_written += bytes;
}

}  // namespace kvtriage
#endif  // HWY_ONCE
