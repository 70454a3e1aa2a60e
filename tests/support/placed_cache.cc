#include "tests/support/placed_cache.h"

#include <limits>

#include "kernels/core/checked_math.h"
#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

// More blocks than needed, in an order that no arithmetic of a kernel would guess.
std::vector<int32_t> ShuffledTable(uint32_t used, uint32_t blocks) {
  std::vector<int32_t> ids(blocks);
  for (uint32_t i = 0; i < blocks; ++i) ids[i] = static_cast<int32_t>(i);
  for (uint32_t i = blocks - 1; i > 0; --i) std::swap(ids[i], ids[SplitMix64(blocks, i) % (i + 1)]);
  ids.resize(used);
  return ids;
}

ViewLayout Strides(const CacheLayout& layout, DType type, uint32_t heads, uint32_t rows,
                   uint32_t elems, uint32_t blocks, bool transposed) {
  ViewLayout view;
  const uint64_t element = ElementBytes(type);
  view.num_blocks = blocks;
  view.block_slots = layout.block_slots == 0 ? rows : layout.block_slots;
  view.heads = heads;
  view.row_elems = elems;
  view.dtype = type;
  view.block_stride = element * heads * view.block_slots * elems;
  view.elem_stride = transposed ? element * view.block_slots : element;
  if (transposed) {  // [block][head][elem][slot]
    view.slot_stride = element;
    view.head_stride = view.elem_stride * elems;
  } else if (layout.block_slots == 0) {  // [head][slot][elem]
    view.slot_stride = element * elems;
    view.head_stride = view.slot_stride * view.block_slots;
  } else {  // [block][slot][head][elem]
    view.head_stride = element * elems;
    view.slot_stride = view.head_stride * heads;
  }
  return view;
}

}  // namespace

PlacedCache::PlacedCache(const CacheLayout& layout, DType type, uint32_t q_heads, uint32_t heads,
                         uint32_t rows, std::span<const float> k, std::span<const float> v,
                         const CacheScales& scales) {
  const uint32_t slots = layout.block_slots == 0 ? rows : layout.block_slots;
  const auto used = static_cast<uint32_t>(CeilDiv(layout.first_slot + rows, slots));
  table_ = ShuffledTable(used, layout.block_slots == 0 ? 1 : used + 2);
  layer_.sequence = {table_.data(), layout.first_slot, rows};
  layer_.q_heads = q_heads;
  layer_.k = Place(layout, type, heads, layout.transposed_keys, k, k_, scales.k,
                   scales.per_row ? &k_scales_ : nullptr);
  layer_.v =
      Place(layout, type, heads, false, v, v_, scales.v, scales.per_row ? &v_scales_ : nullptr);
}

void PlacedCache::PlaceScales(float scale, std::vector<float>& memory, KvView& view) {
  const ViewLayout& layout = view.layout;
  memory.assign(uint64_t{layout.num_blocks} * layout.heads * layout.block_slots,
                std::numeric_limits<float>::quiet_NaN());
  view.scales.base = reinterpret_cast<const std::byte*>(memory.data());
  view.scales.head_stride = sizeof(float);  // [block][slot][head]
  view.scales.slot_stride = sizeof(float) * layout.heads;
  view.scales.block_stride = view.scales.slot_stride * layout.block_slots;
  for (uint32_t h = 0; h < layout.heads; ++h) {
    for (uint32_t p = 0; p < layer_.sequence.rows; ++p) {
      const uint64_t slot = layer_.sequence.first_slot + p;
      const auto block = static_cast<uint64_t>(table_[slot / layout.block_slots]);
      memory[(block * layout.block_slots + slot % layout.block_slots) * layout.heads + h] =
          scale * CacheScales::RowFactor(h, p);
    }
  }
}

KvView PlacedCache::Place(const CacheLayout& layout, DType type, uint32_t heads, bool transposed,
                          std::span<const float> x, std::vector<std::byte>& memory, float scale,
                          std::vector<float>* row_scales) {
  const uint32_t rows = layer_.sequence.rows,
                 elems = static_cast<uint32_t>(x.size() / heads / rows);
  const auto blocks = static_cast<uint32_t>(layout.block_slots == 0 ? 1 : table_.size() + 2);
  KvView view{nullptr, Strides(layout, type, heads, rows, elems, blocks, transposed), {}};
  if (row_scales == nullptr) view.layout.scale = scale;
  if (row_scales != nullptr) PlaceScales(scale, *row_scales, view);
  memory.resize(view.layout.block_stride * blocks);
  view.base = memory.data();
  for (size_t at = 0; at < memory.size(); at += ElementBytes(type)) {
    StoreElement(memory.data() + at, type, std::numeric_limits<float>::quiet_NaN());
  }
  for (uint32_t h = 0; h < heads; ++h) {
    for (uint32_t p = 0; p < rows; ++p) {
      std::byte* row = RowAddress(view, layer_.sequence, h, p);
      const float one = RowScale(view, layer_.sequence, h, p);
      for (uint32_t c = 0; c < elems; ++c) {
        StoreElement(row + c * view.layout.elem_stride, type,
                     x[(size_t{h} * rows + p) * elems + c] / one);
      }
    }
  }
  return view;
}

DenseTensor MakeTensor(std::span<const double> x, uint32_t heads, uint32_t rows, uint32_t elems,
                       DType type, bool rows_first) {
  DenseTensor tensor;
  tensor.bytes.resize(x.size() * ElementBytes(type));
  TensorView& view = tensor.view;
  view = {tensor.bytes.data(), type, rows, heads, elems};
  view.elem_stride = ElementBytes(type);
  const uint64_t inner = view.elem_stride * elems;
  view.row_stride = rows_first ? inner * heads : inner;
  view.head_stride = rows_first ? inner : inner * rows;
  for (uint32_t h = 0; h < heads; ++h) {
    for (uint32_t i = 0; i < rows; ++i) {
      for (uint32_t c = 0; c < elems; ++c) {
        std::byte* at = tensor.bytes.data() + (view.At(i, h, c) - view.base);
        StoreElement(at, type, static_cast<float>(x[(size_t{h} * rows + i) * elems + c]));
      }
    }
  }
  return tensor;
}

}  // namespace kvtriage
