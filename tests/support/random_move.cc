#include "tests/support/random_move.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/checked_math.h"
#include "tests/support/random_layout.h"

namespace kvtriage {
std::vector<int32_t> RandomKept(uint32_t rows, std::mt19937& random) {
  std::vector<int32_t> kept;
  const uint32_t share = random() % 11, prefix = random() % 3 == 0 ? random() % (rows + 1) : 0;
  for (uint32_t p = 0; p < rows; ++p) {
    if (p < prefix || random() % 10 < share) kept.push_back(static_cast<int32_t>(p));
  }
  return kept;
}

std::vector<std::byte> RandomBytes(size_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(size + 8);
  for (size_t i = 0; i < size; i += 4) {
    const uint32_t word = static_cast<uint32_t>(random());
    std::memcpy(&bytes[i], &word, sizeof word);
  }
  bytes.resize(size);
  return bytes;
}

uint64_t MoveByHand(const MoveRequest& request, bool in_place, std::span<const std::byte> source,
                    uint64_t from, std::vector<std::byte>& target, uint64_t to) {
  const std::vector<std::byte> before(source.begin(), source.end());
  const KvView from_view{nullptr, request.from.layout}, to_view{nullptr, request.to.layout};
  const auto offset = [](const KvView& view, const SequenceRows& rows, uint32_t head, uint64_t p) {
    const ViewLayout& layout = view.layout;
    const uint64_t slot = rows.first_slot + p;
    return static_cast<uint64_t>(rows.table[slot / layout.block_slots]) * layout.block_stride +
           head * layout.head_stride + slot % layout.block_slots * layout.slot_stride;
  };
  uint64_t written = 0;
  for (uint32_t head = 0; head < request.kept.size(); ++head) {
    for (size_t j = 0; j < request.kept[head].size(); ++j) {
      const uint64_t p = static_cast<uint64_t>(request.kept[head][j]);
      const uint64_t a = from + offset(from_view, request.from_rows, head, p);
      const uint64_t b = to + offset(to_view, request.to_rows, head, j);
      if (in_place && a == b) continue;
      written += request.from.layout.row_bytes();
      const uint64_t elems = request.from.layout.opaque() ? 1 : request.from.layout.row_elems;
      const uint64_t size = request.from.layout.row_bytes() / elems;
      for (uint64_t e = 0; e < elems; ++e) {
        std::memcpy(&target[b + e * request.to.layout.elem_stride],
                    &before[a + e * request.from.layout.elem_stride], size);
      }
    }
  }
  return written;
}

RandomMove::RandomMove(uint32_t seed, uint32_t most_rows) {
  std::mt19937 random(seed);
  in_place = random() % 2 == 0;
  const uint32_t slots[] = {1, 2, 16, 32, 64, 1 + static_cast<uint32_t>(random() % 400)};
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF8E4M3};
  LayoutShape shape{.block_slots = slots[random() % 6],
                    .heads = 1 + static_cast<uint32_t>(random() % 4),
                    .dtype = kTypes[random() % 3]};
  if (random() % 2 == 0) {
    shape.opaque_row_bytes = 1 + random() % (random() % 4 == 0 ? 1024 : 80);
  } else {
    shape.row_elems = 1 + random() % 40;
  }
  const uint32_t rows = 1 + random() % most_rows, first_slot = random() % 40;
  const auto blocks_for = [&](uint32_t count) {
    return static_cast<uint32_t>(CeilDiv(first_slot + count, shape.block_slots));
  };
  kept_.resize(shape.heads);
  uint32_t longest = 0;
  for (auto& list : kept_) {
    list = RandomKept(rows, random);
    longest = std::max(longest, static_cast<uint32_t>(list.size()));
    request.kept.emplace_back(list);
  }

  shape.num_blocks = blocks_for(rows) + random() % 3;
  const ViewLayout from = RandomLayout(shape, random);
  table_ = RandomTable(blocks_for(rows), shape.num_blocks, random);
  shift = 64 * (random() % 2) + (random() % 2) * (random() % 60);
  // Elements that lie apart are aligned, as registered views are; whole rows need not be.
  if (!from.opaque()) shift -= shift % ElementBytes(from.dtype);
  source = RandomBytes(shift + LayoutBytes(from) + 64, random);
  ViewLayout to = from;
  to_table_ = table_;
  target = source;
  if (!in_place) {
    shape.block_slots = slots[random() % 6];
    shape.num_blocks = blocks_for(longest) + random() % 3;
    to = RandomLayout(shape, random);
    to_table_ = RandomTable(blocks_for(longest), shape.num_blocks, random);
    target = RandomBytes(shift + LayoutBytes(to) + 64, random);
  }
  request.from = {nullptr, from};
  request.from_rows = {table_.data(), first_slot, rows};
  request.to = {nullptr, to};
  request.to_rows = {(in_place ? table_ : to_table_).data(), first_slot, longest};
  right = target;
  bytes_written = MoveByHand(request, in_place, source, shift, right, shift);
}

}  // namespace kvtriage
