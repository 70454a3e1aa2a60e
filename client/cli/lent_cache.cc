#include "client/cli/lent_cache.h"

#include <utility>

#include "client/cli/dump_tensor_spec.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

constexpr uint64_t kAlignment = 64;

// Where the tensors of a group stand in the memory: kind by kind, layer after layer.
struct Placement {
  std::vector<const CacheLayer*> layers;
  uint64_t k = 0, v = 0, q = 0, o = 0, lse = 0, column_sums = 0, output_projection = 0;
  uint64_t query_mean = 0, query_covariance = 0;
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
    if (one.output_projection) {
      group.output_projection = Reserve(end, count * one.output_projection->entry.bytes);
    }
    if (one.query_mean) {
      group.query_mean = Reserve(end, count * one.query_mean->entry.bytes);
      group.query_covariance = Reserve(end, count * one.query_covariance->entry.bytes);
    }
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
    if (layer.output_projection) {
      KVTRIAGE_RETURN_IF_ERROR(read(group.output_projection, *layer.output_projection));
    }
    if (layer.query_mean) {
      KVTRIAGE_RETURN_IF_ERROR(read(group.query_mean, *layer.query_mean));
      KVTRIAGE_RETURN_IF_ERROR(read(group.query_covariance, *layer.query_covariance));
    }
  }
  return absl::OkStatus();
}

// Column sums [Hq, N] and means [Hq, dk] are one row.
client::TensorSpec OneRowSpec(client::Region region, uint64_t offset, const DumpTensor& tensor,
                              size_t layers) {
  client::TensorSpec spec = InputSpec(region, offset, tensor, layers);
  spec.rows = 1;
  spec.row_stride = 0;
  spec.elems = static_cast<uint32_t>(tensor.rows());
  return spec;
}

// W_O [hidden, Hq * dv]: rows of the hidden size, cut into the query heads' parts.
client::TensorSpec ProjectionSpec(client::Region region, uint64_t offset, const CacheLayer& layer,
                                  size_t layers) {
  client::TensorSpec spec = InputSpec(region, offset, *layer.output_projection, layers);
  spec.row_stride = spec.head_stride;  // the tensor's first axis
  spec.rows = spec.heads;
  spec.heads = static_cast<uint32_t>(layer.q.heads());
  spec.elems = static_cast<uint32_t>(layer.v.elems());
  spec.head_stride = spec.elems * spec.elem_stride;
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

// Layers of one group have one head size. Without a rope the service says which policies need one.
void AddRope(const Dump& dump, client::CacheSpec& cache) {
  if (!dump.rope()) return;
  client::RopeSpec rope = *dump.rope();
  const uint32_t size = cache.layers.front().k.row_elems;
  if (rope.rotary_dim == 0) rope.rotary_dim = size;
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > size) return;
  cache.ropes.push_back(std::move(rope));
  for (client::LayerSpec& layer : cache.layers) layer.rope_index = 1;
}

}  // namespace

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
    AddRope(dump, cache);
    registration.caches.push_back(std::move(cache));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const client::Registered registered, session.Register(registration));

  for (size_t g = 0; g < placements.size(); ++g) {
    const Placement& placement = placements[g];
    const CacheLayer& one = *placement.layers.front();
    const size_t count = placement.layers.size();
    LentGroup group;
    group.cache = registered.caches[g];
    const client::Region region = registered.regions.front();
    group.q = InputSpec(region, placement.q, one.q, count);
    if (one.o) group.o = InputSpec(region, placement.o, *one.o, count);
    if (one.lse) group.lse = InputSpec(region, placement.lse, *one.lse, count);
    if (one.colsum_all) {
      group.column_sums = OneRowSpec(region, placement.column_sums, *one.colsum_all, count);
    }
    if (one.output_projection) {
      group.output_projection = ProjectionSpec(region, placement.output_projection, one, count);
    }
    if (one.query_mean) {
      group.query_mean = OneRowSpec(region, placement.query_mean, *one.query_mean, count);
      group.query_covariance =
          InputSpec(region, placement.query_covariance, *one.query_covariance, count);
    }
    for (size_t i = 0; i < count; ++i) {
      LentLayer layer;
      layer.shape = *placement.layers[i];
      std::byte* const base = lent->memory_.data();
      layer.rows = {CacheView(base + placement.k + i * one.k.entry.bytes, layer.shape.k),
                    CacheView(base + placement.v + i * one.v.entry.bytes, layer.shape.v),
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
