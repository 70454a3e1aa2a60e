#include "service/engine/packed_kept.h"

#include "kernels/core/checked_math.h"
#include "service/engine/engine.h"

namespace kvtriage {
namespace {

void SetBits(std::span<const int32_t> list, char* bits) {
  for (const int32_t row : list) {
    char& byte = bits[row / 8];
    byte = static_cast<char>(byte | (1 << (row % 8)));
  }
}

}  // namespace

PackedKept Pack(std::span<const std::vector<int32_t>> lists, uint64_t rows, KeptFormat format) {
  PackedKept packed;
  packed.counts.reserve(lists.size());
  for (const auto& list : lists) packed.counts.push_back(static_cast<int32_t>(list.size()));
  if (format != KeptFormat::kBitmap) return packed;
  const uint64_t stride = CeilDiv(rows, 8);
  packed.bitmaps.resize(lists.size() * stride);
  for (size_t i = 0; i < lists.size(); ++i) SetBits(lists[i], packed.bitmaps.data() + i * stride);
  return packed;
}

uint64_t KeptBytes(std::span<const std::vector<int32_t>> lists, uint64_t rows, KeptFormat format) {
  uint64_t kept = 0;
  for (const auto& list : lists) kept += list.size();
  return KeptBytes(lists.size(), kept, rows, format);
}

uint64_t KeptBytes(uint64_t lists, uint64_t kept, uint64_t rows, KeptFormat format) {
  const uint64_t counts = lists * sizeof(int32_t);
  switch (format) {
    case KeptFormat::kIndices:
      return counts + kept * sizeof(int32_t);
    case KeptFormat::kBitmap:
      return counts + lists * CeilDiv(rows, 8);
    case KeptFormat::kCounts:
      return counts;
  }
  return counts;
}

void PackKept(CompressAnswer& answer) {
  if (answer.format == KeptFormat::kIndices) return;
  for (SequenceOutcome& outcome : answer.sequences) {
    outcome.packed = Pack(outcome.triage.kept, outcome.physical_len, answer.format);
    outcome.triage.kept = {};
  }
}

}  // namespace kvtriage
