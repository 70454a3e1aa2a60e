#include "client/cli/lent_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

constexpr uint64_t kAlignment = 64;

client::DType ClientType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return client::DType::kF32;
    case DType::kF16:
      return client::DType::kF16;
    case DType::kBF16:
      return client::DType::kBF16;
  }
  return client::DType::kUnspecified;
}

// Where the tensors of a group stand in the memory: kind by kind, layer after layer.
struct Placement {
  std::vector<const CacheLayer*> layers;
  uint64_t k = 0, v = 0, q = 0, o = 0, lse = 0, column_sums = 0;
};

uint64_t Reserve(uint64_t& end, uint64_t bytes) {
  const uint64_t at = end;
  end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

// The dump's sizes were checked against its file and its cap, so sums of them can't wrap.
std::vector<Placement> Place(const std::vector<CacheLayer>& layers, uint64_t& end) {
  std::vector<Placement> groups;
  for (const CacheLayer& layer : layers) {
    if (groups.empty() || !SameShape(*groups.back().layers.front(), layer)) groups.emplace_back();
    groups.back().layers.push_back(&layer);
  }
  for (Placement& group : groups) {
    const CacheLayer& one = *group.layers.front();
    const uint64_t count = group.layers.size();
    group.k = Reserve(end, count * one.k.entry.bytes);
    group.v = Reserve(end, count * one.v.entry.bytes);
    group.q = Reserve(end, count * one.q.entry.bytes);
    if (one.o) group.o = Reserve(end, count * one.o->entry.bytes);
    if (one.lse) group.lse = Reserve(end, count * one.lse->entry.bytes);
    if (one.colsum_all) group.column_sums = Reserve(end, count * one.colsum_all->entry.bytes);
  }
  return groups;
}

absl::Status Fill(const SafetensorsFile& file, const Placement& group, client::HostMemory& memory) {
  for (size_t i = 0; i < group.layers.size(); ++i) {
    const CacheLayer& layer = *group.layers[i];
    const auto read = [&](uint64_t start, const DumpTensor& tensor) {
      return file.Read(tensor.entry,
                       memory.bytes().subspan(start + i * tensor.entry.bytes, tensor.entry.bytes));
    };
    KVTRIAGE_RETURN_IF_ERROR(read(group.k, layer.k));
    KVTRIAGE_RETURN_IF_ERROR(read(group.v, layer.v));
    KVTRIAGE_RETURN_IF_ERROR(read(group.q, layer.q));
    if (layer.o) KVTRIAGE_RETURN_IF_ERROR(read(group.o, *layer.o));
    if (layer.lse) KVTRIAGE_RETURN_IF_ERROR(read(group.lse, *layer.lse));
    if (layer.colsum_all) KVTRIAGE_RETURN_IF_ERROR(read(group.column_sums, *layer.colsum_all));
  }
  return absl::OkStatus();
}

// A dump tensor [heads, rows, elems] of every layer as (layer, row, head, elem) axes.
client::TensorSpec Input(uint64_t offset, const DumpTensor& tensor, size_t layers) {
  const uint64_t element = ElementBytes(tensor.dtype);
  client::TensorSpec spec;
  spec.offset = offset;
  spec.dtype = ClientType(tensor.dtype);
  spec.layers = static_cast<uint32_t>(layers);
  spec.rows = static_cast<uint32_t>(tensor.rows());
  spec.heads = static_cast<uint32_t>(tensor.heads());
  spec.elems = static_cast<uint32_t>(tensor.elems());
  spec.layer_stride = tensor.entry.bytes;
  spec.head_stride = tensor.rows() * tensor.elems() * element;
  spec.row_stride = tensor.elems() * element;
  spec.elem_stride = element;
  return spec;
}

// Column sums [Hq, N] are one row whose elements are the cached rows.
client::TensorSpec SumsInput(uint64_t offset, const DumpTensor& sums, size_t layers) {
  client::TensorSpec spec = Input(offset, sums, layers);
  spec.rows = 1;
  spec.row_stride = 0;
  spec.elems = static_cast<uint32_t>(sums.rows());
  return spec;
}

client::LayerSpec LayerOf(const Placement& group, size_t i) {
  const CacheLayer& layer = *group.layers[i];
  client::LayerSpec spec;
  spec.layer_index = layer.layer;
  spec.q_heads = static_cast<uint32_t>(layer.q.heads());
  spec.kv_heads = static_cast<uint32_t>(layer.k.heads());
  const auto view = [&](uint64_t start, const DumpTensor& tensor) {
    return client::ContiguousView(client::Region::OfThisCall(0), start + i * tensor.entry.bytes,
                                  static_cast<uint32_t>(tensor.heads()),
                                  static_cast<uint32_t>(tensor.rows()),
                                  static_cast<uint32_t>(tensor.elems()), ClientType(tensor.dtype));
  };
  spec.k = view(group.k, layer.k);
  spec.v = view(group.v, layer.v);
  return spec;
}

KvView KernelView(std::byte* base, const DumpTensor& tensor) {
  const uint64_t element = ElementBytes(tensor.dtype);
  ViewLayout layout;
  layout.head_stride = tensor.rows() * tensor.elems() * element;
  layout.slot_stride = tensor.elems() * element;
  layout.elem_stride = element;
  layout.num_blocks = 1;
  layout.block_slots = static_cast<uint32_t>(tensor.rows());
  layout.heads = static_cast<uint32_t>(tensor.heads());
  layout.row_elems = static_cast<uint32_t>(tensor.elems());
  layout.dtype = tensor.dtype;
  return {base, layout};
}

}  // namespace

TensorView QueryView(const std::byte* base, const DumpTensor& tensor) {
  const uint64_t element = ElementBytes(tensor.dtype);
  TensorView view;
  view.base = base;
  view.dtype = tensor.dtype;
  view.rows = static_cast<uint32_t>(tensor.rows());
  view.heads = static_cast<uint32_t>(tensor.heads());
  view.elems = static_cast<uint32_t>(tensor.elems());
  view.head_stride = tensor.rows() * tensor.elems() * element;
  view.row_stride = tensor.elems() * element;
  view.elem_stride = element;
  return view;
}

absl::StatusOr<std::unique_ptr<LentCache>> LentCache::Lend(client::Session& session,
                                                           const Dump& dump) {
  uint64_t bytes = 0;
  const std::vector<Placement> placements = Place(dump.cache_layers(), bytes);
  KVTRIAGE_ASSIGN_OR_RETURN(client::HostMemory memory, client::HostMemory::Create(bytes));
  std::unique_ptr<LentCache> lent(new LentCache(std::move(memory)));

  client::Registration registration;
  registration.regions.push_back(lent->memory_.Lend(client::Access::kRead));
  for (const Placement& placement : placements) {
    KVTRIAGE_RETURN_IF_ERROR(Fill(dump.file(), placement, lent->memory_));
    client::CacheSpec cache;
    cache.num_layers = dump.model_layers();
    for (size_t i = 0; i < placement.layers.size(); ++i)
      cache.layers.push_back(LayerOf(placement, i));
    registration.caches.push_back(std::move(cache));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const client::Registered registered, session.Register(registration));

  for (size_t g = 0; g < placements.size(); ++g) {
    const Placement& placement = placements[g];
    const CacheLayer& one = *placement.layers.front();
    const size_t count = placement.layers.size();
    LentGroup group;
    group.cache = registered.caches[g];
    group.q = Input(placement.q, one.q, count);
    if (one.o) group.o = Input(placement.o, *one.o, count);
    if (one.lse) group.lse = Input(placement.lse, *one.lse, count);
    if (one.colsum_all)
      group.column_sums = SumsInput(placement.column_sums, *one.colsum_all, count);
    for (client::TensorSpec* input :
         {&group.q, group.o ? &*group.o : nullptr, group.lse ? &*group.lse : nullptr,
          group.column_sums ? &*group.column_sums : nullptr}) {
      if (input != nullptr) input->region = registered.regions.front();
    }
    for (size_t i = 0; i < count; ++i) {
      LentLayer layer;
      layer.shape = *placement.layers[i];
      std::byte* const base = lent->memory_.data();
      layer.rows = {KernelView(base + placement.k + i * one.k.entry.bytes, layer.shape.k),
                    KernelView(base + placement.v + i * one.v.entry.bytes, layer.shape.v),
                    {&lent->block_, 0, static_cast<uint32_t>(layer.shape.k.rows())},
                    static_cast<uint32_t>(layer.shape.q.heads())};
      layer.q = QueryView(base + placement.q + i * one.q.entry.bytes, layer.shape.q);
      if (layer.shape.future_q) {
        layer.future_q.resize(layer.shape.future_q->entry.bytes);
        KVTRIAGE_RETURN_IF_ERROR(dump.file().Read(layer.shape.future_q->entry, layer.future_q));
      }
      group.layers.push_back(std::move(layer));
    }
    lent->groups_.push_back(std::move(group));
  }
  return lent;
}

}  // namespace kvtriage::cli
