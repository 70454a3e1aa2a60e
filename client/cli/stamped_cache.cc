#include "client/cli/stamped_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {

absl::StatusOr<StampedCache> StampedCache::Create(uint32_t tokens, uint32_t layers, uint32_t heads,
                                                  uint32_t elems) {
  const uint64_t bytes = uint64_t{2} * layers * heads * tokens * elems * sizeof(float);
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory memory, client::HostMemory::Create(bytes));
  StampedCache cache(std::move(memory), tokens, layers, heads, elems);
  for (uint32_t plane = 0; plane < 2 * layers; ++plane) {
    for (uint32_t head = 0; head < heads; ++head) {
      for (uint32_t row = 0; row < tokens; ++row) {
        std::fill_n(cache.Row(plane, head, row), elems, Stamp(plane, head, row));
      }
    }
  }
  return cache;
}

// Small whole numbers: exact in float32.
float StampedCache::Stamp(uint32_t plane, uint32_t head, uint32_t row) {
  return static_cast<float>(plane * 100000 + head * 1000 + row);
}

float* StampedCache::Row(uint32_t plane, uint32_t head, uint32_t row) const {
  const uint64_t index = ((uint64_t{plane} * heads_ + head) * tokens_ + row) * elems_;
  return reinterpret_cast<float*>(memory_.data()) + index;
}

client::CacheSpec StampedCache::Describe() const {
  client::CacheSpec spec;
  spec.num_layers = layers_;
  const uint64_t plane_bytes = uint64_t{heads_} * tokens_ * elems_ * sizeof(float);
  const auto view = [&](uint32_t plane) {
    return client::ContiguousView(client::Region::OfThisCall(0), plane * plane_bytes, heads_,
                                  tokens_, elems_, client::DType::kF32);
  };
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    client::LayerSpec to;
    to.layer_index = layer;
    to.q_heads = to.kv_heads = heads_;
    to.k = view(2 * layer);
    to.v = view(2 * layer + 1);
    spec.layers.push_back(std::move(to));
  }
  return spec;
}

client::Sequence StampedCache::WholeSequence(uint64_t id) const {
  client::Sequence sequence;
  sequence.sequence_id = id;
  sequence.logical_len = sequence.physical_len = tokens_;
  sequence.table = {0};
  sequence.sharing = client::Sharing::kAllPrivate;
  return sequence;
}

std::string StampedCache::Difference(const std::vector<int32_t>& rows,
                                     const client::KeptSets& kept) const {
  for (uint32_t plane = 0; plane < 2 * layers_; ++plane) {
    for (uint32_t head = 0; head < heads_; ++head) {
      const std::string place = absl::StrCat("layer ", plane / 2, ", head ", head, ": ");
      if (kept.At(plane / 2, head) != rows) return place + "other rows were kept";
      for (uint32_t i = 0; i < rows.size(); ++i) {
        const float want = Stamp(plane, head, static_cast<uint32_t>(rows[i]));
        const float* const row = Row(plane, head, i);
        if (!std::all_of(row, row + elems_, [&](float value) { return value == want; })) {
          return absl::StrCat(place, plane % 2 == 0 ? "K" : "V", " row ", i, " is not old row ",
                              rows[i]);
        }
      }
    }
  }
  return "";
}

}  // namespace kvtriage::cli
