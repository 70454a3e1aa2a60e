// Rotary turns of stored keys, in place (kvtriage/kernels/rotate.h). A block takes some rows of one
// layer: it computes their angles once (float64, rounded to float32 cosines and sines as the CPU
// backend does) and turns the rows of all heads, or of one head where heads have histories of their
// own.
#ifndef KVTRIAGE_KERNELS_CUDA_ROTATE_CUH_
#define KVTRIAGE_KERNELS_CUDA_ROTATE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_view.cuh"
#include "kernels/cuda/rotate_launch.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/sine_cosine.cuh"

namespace kvtriage {

SIMT_DEVICE int64_t PositionAt(const DevicePositions& positions, uint64_t row, uint32_t plane) {
  if (positions.list == nullptr) return static_cast<int64_t>(positions.first + row);
  return simt::Load(positions.list + uint64_t{plane} * positions.rows + row);
}

SIMT_DEVICE double TurnAngle(const RotateArgs& args, uint32_t pair, int64_t from, int64_t to) {
  const double speed = simt::Load(args.speeds + pair);
  if (args.exact != 0) return static_cast<double>(to - from) * speed;
  const auto rounded = static_cast<float>(speed);
  return static_cast<double>(simt::MulRounded(static_cast<float>(to), rounded)) -
         static_cast<double>(simt::MulRounded(static_cast<float>(from), rounded));
}

// The block's angles. `list` numbers the (layer, head) whose history counts; unused without lists.
SIMT_DEVICE void ComputeTurns(const RotateArgs& args, uint32_t list, uint32_t row0, uint32_t rows,
                              const simt::Shared<float>& cosines, const simt::Shared<float>& sines,
                              const simt::Shared<uint32_t>& turns) {
  const uint32_t planes = args.section_ends[0] < args.pairs ? 3 : 1;
  for (uint32_t i = simt::ThreadX(); i < rows * args.pairs; i += kRotateThreads) {
    const uint32_t r = i / args.pairs, pair = i - r * args.pairs;
    const uint64_t row = row0 + r;
    const uint64_t before =
        args.from_rows == nullptr
            ? row
            : static_cast<uint64_t>(simt::Load(simt::Load(args.from_rows + list) + row));
    const uint32_t plane =
        (pair >= args.section_ends[0] ? 1 : 0) + (pair >= args.section_ends[1] ? 1 : 0);
    const double angle = TurnAngle(args, pair, PositionAt(args.from, before, plane),
                                   PositionAt(args.to, row, plane));
    double sine, cosine;
    SineCosine(angle, &sine, &cosine);
    cosines[i] = static_cast<float>(cosine);
    sines[i] = static_cast<float>(sine);
    if (pair != 0) continue;
    bool moves = false;
    for (uint32_t p = 0; p < planes; ++p) {
      moves = moves || PositionAt(args.from, before, p) != PositionAt(args.to, row, p);
    }
    turns[r] = moves ? 1 : 0;
  }
}

SIMT_DEVICE void TurnPair(const DeviceView& view, std::byte* a_at, std::byte* b_at, float cosine,
                          float sine) {
  const float a = LoadWide(a_at, view.dtype), b = LoadWide(b_at, view.dtype);
  StoreNarrow(a_at, view.dtype, simt::MulRounded(a, cosine) - simt::MulRounded(b, sine));
  StoreNarrow(b_at, view.dtype, simt::MulRounded(b, cosine) + simt::MulRounded(a, sine));
}

// Grid: x pieces of kRotateRows rows, y layers, or (layer, head) where there are lists.
SIMT_KERNEL void SIMT_BOUNDS(kRotateThreads, 12) RotateKeysKernel(RotateArgs args) {
  const size_t numbers = size_t{kRotateRows} * args.pairs;
  const simt::Shared<float> cosines(simt::SharedMemory(0));
  const simt::Shared<float> sines(simt::SharedMemory(numbers * sizeof(float)));
  const simt::Shared<uint32_t> turns(simt::SharedMemory(2 * numbers * sizeof(float)));
  const uint32_t row0 = simt::BlockX() * kRotateRows;
  const uint32_t rows = args.count - row0 < kRotateRows ? args.count - row0 : kRotateRows;
  const uint32_t heads = args.layers[0].heads;
  const bool by_head = args.from_rows != nullptr;
  const DeviceView& view = args.layers[by_head ? simt::BlockY() / heads : simt::BlockY()];
  ComputeTurns(args, simt::BlockY(), row0, rows, cosines, sines, turns);
  simt::SyncThreads();
  const uint32_t first_head = by_head ? simt::BlockY() % heads : 0;
  const uint32_t last_head = by_head ? first_head + 1 : heads;
  const uint64_t elem = view.rows.elem_stride;
  for (uint32_t i = simt::ThreadX(); i < rows * args.pairs; i += kRotateThreads) {
    const uint32_t r = i / args.pairs, pair = i - r * args.pairs;
    if (turns[r] == 0) continue;
    std::byte* const row = RowAt(view.rows, uint64_t{args.first_row} + row0 + r);
    const uint32_t a = args.offset + (args.half != 0 ? pair : 2 * pair);
    const uint32_t b = args.offset + (args.half != 0 ? pair + args.pairs : 2 * pair + 1);
    for (uint32_t head = first_head; head < last_head; ++head) {
      std::byte* const at = row + head * view.head_stride;
      TurnPair(view, at + a * elem, at + b * elem, cosines[i], sines[i]);
    }
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_ROTATE_CUH_
