#include "client/cpp/kept_sets_from_proto.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string_view>

#include "client/cpp/int32_bytes.h"
#include "client/cpp/local_error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

absl::Status Malformed(std::string_view what) {
  return LocalError(absl::StatusCode::kInternal, "bad_answer", what);
}

size_t ListsFor(Granularity granularity, const std::vector<uint32_t>& heads) {
  switch (granularity) {
    case Granularity::kPerHead:
      return std::accumulate(heads.begin(), heads.end(), size_t{0});
    case Granularity::kPerLayer:
      return heads.size();
    case Granularity::kPerSequence:
      return 1;
    case Granularity::kUnspecified:
      return 0;
  }
  return 0;
}

v1::KeptSets::SetsCase CaseOf(KeptFormat format) {
  switch (format) {
    case KeptFormat::kIndices:
      return v1::KeptSets::kIndicesLe;
    case KeptFormat::kBitmap:
      return v1::KeptSets::kBitmaps;
    case KeptFormat::kCounts:
      return v1::KeptSets::SETS_NOT_SET;
  }
  return v1::KeptSets::SETS_NOT_SET;
}

absl::Status ReadIndices(std::string_view bytes, KeptSets& out) {
  const auto indices = FromBytes(bytes);
  if (!indices) return Malformed("kept sets: not whole indices");
  auto next = indices->begin();
  for (const uint32_t count : out.counts) {
    if (count > indices->end() - next) return Malformed("kept sets: counts exceed the indices");
    out.lists.emplace_back(next, next + count);
    next += count;
  }
  if (next != indices->end()) return Malformed("kept sets: more indices than counts");
  return absl::OkStatus();
}

// The numbers of the bits that are set.
std::vector<int32_t> RowsOf(std::string_view bitmap) {
  std::vector<int32_t> rows;
  for (size_t i = 0; i < bitmap.size(); ++i) {
    for (auto byte = static_cast<uint8_t>(bitmap[i]); byte != 0; byte &= byte - 1) {
      rows.push_back(static_cast<int32_t>(i * 8) + std::countr_zero(byte));
    }
  }
  return rows;
}

absl::Status ReadBitmaps(std::string_view bytes, uint64_t rows, KeptSets& out) {
  const uint64_t stride = rows / 8 + (rows % 8 != 0 ? 1 : 0);
  if (bytes.size() != out.counts.size() * stride)
    return Malformed("kept sets: bitmaps of a wrong size");
  for (size_t i = 0; i < out.counts.size(); ++i) {
    std::vector<int32_t> list = RowsOf(bytes.substr(i * stride, stride));
    if (list.size() != out.counts[i]) return Malformed("kept sets: counts and bits do not agree");
    if (!list.empty() && static_cast<uint64_t>(list.back()) >= rows) {
      return Malformed("kept sets: a bit behind the last row");
    }
    out.lists.push_back(std::move(list));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeptSets> KeptSetsFrom(const v1::KeptSets& from, KeptFormat format, uint64_t rows,
                                      const std::vector<uint32_t>& heads) {
  KeptSets out;
  out.granularity = static_cast<Granularity>(from.granularity());
  out.heads = heads;
  const auto counts = FromBytes(from.counts_le());
  const size_t lists = ListsFor(out.granularity, heads);
  if (!counts || lists == 0 || counts->size() != lists || from.lists() != lists) {
    return Malformed("kept sets: wrong number of lists");
  }
  if (std::any_of(counts->begin(), counts->end(), [](int32_t count) { return count < 0; })) {
    return Malformed("kept sets: a negative count");
  }
  if (from.sets_case() != CaseOf(format))
    return Malformed("kept sets: not in the format asked for");
  out.counts.assign(counts->begin(), counts->end());
  if (format == KeptFormat::kIndices) {
    KVTRIAGE_RETURN_IF_ERROR(ReadIndices(from.indices_le(), out));
  } else if (format == KeptFormat::kBitmap) {
    KVTRIAGE_RETURN_IF_ERROR(ReadBitmaps(from.bitmaps(), rows, out));
  }
  return out;
}

size_t KeptSets::NumberOf(uint32_t layer, uint32_t head) const {
  if (granularity == Granularity::kPerLayer) return layer;
  if (granularity == Granularity::kPerSequence) return 0;
  size_t number = head;
  for (uint32_t before = 0; before < layer; ++before) number += heads.at(before);
  return number;
}

const std::vector<int32_t>& KeptSets::At(uint32_t layer, uint32_t head) const {
  return lists.at(NumberOf(layer, head));
}

uint32_t KeptSets::CountAt(uint32_t layer, uint32_t head) const {
  return counts.at(NumberOf(layer, head));
}

}  // namespace kvtriage::client
