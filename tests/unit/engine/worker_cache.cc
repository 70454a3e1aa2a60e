#include "tests/unit/engine/worker_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "kernels/core/splitmix64.h"

namespace kvtriage {
namespace {

constexpr uint64_t kPage = 4096;

ViewLayout Layout(const CacheShape& shape, uint32_t heads, uint32_t elems, bool transposed) {
  const uint64_t element = ElementBytes(shape.dtype);
  ViewLayout view;
  view.num_blocks = shape.blocks;
  view.block_slots = shape.block_slots;
  view.heads = heads;
  view.row_elems = elems;
  view.dtype = shape.dtype;
  view.elem_stride = transposed ? element * shape.block_slots : element;
  view.slot_stride = transposed ? element : element * elems;
  view.head_stride = element * elems * shape.block_slots;
  view.block_stride = view.head_stride * heads;
  return view;
}

ViewLayout OpaqueLayout(const CacheShape& shape, uint32_t heads, uint32_t row_bytes) {
  ViewLayout view;
  view.num_blocks = shape.blocks;
  view.block_slots = shape.block_slots;
  view.heads = heads;
  view.opaque_row_bytes = row_bytes;
  view.slot_stride = row_bytes;
  view.head_stride = uint64_t{row_bytes} * shape.block_slots;
  view.block_stride = view.head_stride * heads;
  return view;
}

// Offset of an element's first byte from the region's start, and how many bytes it has.
struct Piece {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

std::vector<Piece> PiecesOfRow(const ViewSpec& view, uint32_t head, int32_t block, uint64_t slot) {
  const ViewLayout& layout = view.layout;
  const uint64_t at = view.offset + static_cast<uint64_t>(block) * layout.block_stride +
                      head * layout.head_stride + slot * layout.slot_stride;
  if (layout.opaque()) return {{at, layout.row_bytes()}};
  std::vector<Piece> pieces;
  for (uint32_t e = 0; e < layout.row_elems; ++e) {
    pieces.push_back({at + e * layout.elem_stride, ElementBytes(layout.dtype)});
  }
  return pieces;
}

std::vector<Piece> PiecesAt(const ViewSpec& view, uint32_t head, const std::vector<int32_t>& table,
                            uint64_t slot) {
  const uint64_t block_slots = view.layout.block_slots;
  return PiecesOfRow(view, head, table.at(slot / block_slots), slot % block_slots);
}

CompressSpec PlainSpec(const WorkerCache& cache, std::vector<SequenceSpec> sequences,
                       uint32_t kept) {
  CompressSpec spec;
  spec.header.key = NewKey();
  spec.cache_id = cache.id();
  spec.sequences = std::move(sequences);
  spec.policy.budget.kept_tokens = kept;
  return spec;
}

}  // namespace

WorkerCache::WorkerCache(std::shared_ptr<Session> session, const CacheShape& shape, uint64_t seed,
                         uint64_t tail_bytes)
    : shape_(shape) {
  uint64_t next = 0;
  const auto place = [&next](const ViewLayout& layout) {
    ViewSpec view{0, next, layout};
    next += layout.num_blocks * layout.block_stride;
    return view;
  };
  for (uint32_t l = 0; l < shape.heads.size(); ++l) {
    LayerSpec layer;
    layer.layer_index = l;
    layer.kv_heads = shape.heads[l];
    layer.q_heads = shape.heads[l] * shape.group;
    layer.k = place(Layout(shape, shape.heads[l], shape.dk, shape.transposed_keys));
    if (shape.row_scales) layer.k_scales = place(OpaqueLayout(shape, shape.heads[l], 4));
    if (shape.v_in_k) {
      layer.kind = LayerKind::kMla;
      layer.v_in_k = true;
      layer.v_first_elem = shape.dk - shape.dv;
      layer.v = layer.k;
      layer.v.offset += layer.v_first_elem * layer.k.layout.elem_stride;
      layer.v.layout.row_elems = shape.dv;
    } else {
      layer.v = place(Layout(shape, shape.heads[l], shape.dv, false));
      if (shape.row_scales) layer.v_scales = place(OpaqueLayout(shape, shape.heads[l], 4));
    }
    if (shape.companion_bytes > 0) {
      layer.companions.push_back(place(OpaqueLayout(shape, shape.heads[l], shape.companion_bytes)));
    }
    if (l < shape.rope_of.size()) layer.rope_index = shape.rope_of[l];
    spec_.layers.push_back(layer);
  }
  spec_.ropes = shape.ropes;
  spec_.num_layers = static_cast<uint32_t>(shape.heads.size());
  tail_ = (next + kPage - 1) / kPage * kPage;
  lent_ = std::make_unique<Lent>(session, tail_ + tail_bytes, shape.writable);
  for (uint64_t i = 0; i < lent_->bytes(); ++i) {
    lent_->data()[i] = static_cast<std::byte>(SplitMix64(seed, i) >> 24);
  }
  for (LayerSpec& layer : spec_.layers) {
    layer.k.region_id = layer.v.region_id = lent_->region_id();
    if (layer.k_scales) layer.k_scales->region_id = lent_->region_id();
    if (layer.v_scales) layer.v_scales->region_id = lent_->region_id();
    for (ViewSpec& companion : layer.companions) companion.region_id = lent_->region_id();
  }
  cache_id_ = RegisterCache(session, spec_);
}

SequenceSpec WorkerCache::Sequence(uint64_t id, uint32_t rows, std::vector<int32_t> table) const {
  SequenceSpec sequence;
  sequence.sequence_id = id;
  sequence.logical_len = rows;
  sequence.physical_len = rows;
  sequence.table = std::move(table);
  sequence.sharing = Sharing::kAllPrivate;
  return sequence;
}

std::vector<ViewSpec> WorkerCache::ViewsOf(uint32_t layer) const {
  std::vector<ViewSpec> views;
  const auto add = [&views](const ViewSpec& view, const std::string&) {
    views.push_back(view);
    return absl::OkStatus();
  };
  spec_.layers[layer].ForEachView(add).IgnoreError();
  return views;
}

void WorkerCache::Gather(const CompressAnswer& answer, const SequenceOutcome& outcome,
                         const SequenceSpec& sequence, const std::vector<int32_t>& target_table,
                         const WorkerCache& target, std::span<const std::byte> from,
                         std::vector<std::byte>& after) const {
  for (uint32_t l = 0; l < answer.layers; ++l) {
    const std::vector<ViewSpec> sources = ViewsOf(answer.layer_indexes[l]);
    const std::vector<ViewSpec> targets = target.ViewsOf(answer.layer_indexes[l]);
    for (uint32_t h = 0; h < answer.heads[l]; ++h) {
      const std::vector<int32_t>& kept = outcome.triage.ListOf(l, h);
      for (size_t j = 0; j < kept.size(); ++j) {
        const uint64_t source_slot = sequence.first_slot + static_cast<uint64_t>(kept[j]);
        for (size_t v = 0; v < sources.size(); ++v) {
          const auto read = PiecesAt(sources[v], h, sequence.table, source_slot);
          const auto write = PiecesAt(targets[v], h, target_table, sequence.first_slot + j);
          for (size_t piece = 0; piece < read.size(); ++piece) {
            std::memcpy(after.data() + write[piece].offset, from.data() + read[piece].offset,
                        read[piece].bytes);
          }
        }
      }
    }
  }
}

std::vector<std::byte> WorkerCache::Row(std::span<const std::byte> memory, uint32_t layer,
                                        uint32_t head, const std::vector<int32_t>& table,
                                        uint64_t slot) const {
  std::vector<std::byte> row;
  for (const ViewSpec& view : ViewsOf(layer)) {
    for (const Piece& piece : PiecesAt(view, head, table, slot)) {
      const auto bytes = memory.subspan(piece.offset, piece.bytes);
      row.insert(row.end(), bytes.begin(), bytes.end());
    }
  }
  return row;
}

CompressSpec RecencySpec(const WorkerCache& cache, std::vector<SequenceSpec> sequences,
                         uint32_t kept) {
  CompressSpec spec = PlainSpec(cache, std::move(sequences), kept);
  spec.policy.name = "streaming";
  spec.policy.score.scorer = Scorer::kRecency;
  return spec;
}

CompressSpec RandomSpec(const WorkerCache& cache, std::vector<SequenceSpec> sequences,
                        uint32_t kept, uint64_t random_key) {
  CompressSpec spec = PlainSpec(cache, std::move(sequences), kept);
  spec.policy.score.scorer = Scorer::kRandom;
  spec.policy.score.random_key = random_key;
  return spec;
}

void ActInPlace(CompressSpec& spec, uint32_t slot) {
  spec.act.kind = ActKind::kInPlace;
  spec.act.ledger_slot = slot;
}

void ActCopy(CompressSpec& spec, uint64_t cache_id) {
  spec.act.kind = ActKind::kCopy;
  spec.act.destination_cache_id = cache_id;
}

}  // namespace kvtriage
