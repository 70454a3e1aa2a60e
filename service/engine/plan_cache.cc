#include "service/engine/plan_cache.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/memory/memory_unknown.h"
#include "service/memory/region.h"
#include "service/policy/view_geometry.h"

namespace kvtriage {
namespace {

absl::StatusOr<KvView> Resolve(SessionMemory& memory, const ViewSpec& view, bool written,
                               std::string_view field, PinSet& pins) {
  KVTRIAGE_ASSIGN_OR_RETURN(const RegionPin* pin, pins.Pin(memory, view.region_id, field));
  if (written && !pin->writable()) {
    return absl::Status(
        Error(ErrorReason::kRegionReadOnly, field, "the cache lies in a region lent for reading"));
  }
  return KvView{pin->data() + view.offset, view.layout, {}};
}

RowScales ScalesIn(const KvView& view) {
  return {view.base, view.layout.block_stride, view.layout.head_stride, view.layout.slot_stride};
}

absl::StatusOr<PlanLayer> ResolveLayer(SessionMemory& memory, const LayerSpec& spec, bool written,
                                       std::string_view field, PinSet& pins) {
  PlanLayer layer;
  layer.layer_index = spec.layer_index;
  layer.q_heads = spec.q_heads;
  layer.kind = spec.kind;
  layer.movable = spec.movable();
  layer.sliding_window = spec.sliding_window;
  KVTRIAGE_ASSIGN_OR_RETURN(layer.k, Resolve(memory, spec.k, written, field, pins));
  KVTRIAGE_ASSIGN_OR_RETURN(layer.v, Resolve(memory, spec.v, written, field, pins));
  layer.v_in_k = spec.v_in_k;
  layer.v_first_elem = spec.v_first_elem;
  if (spec.k_scales) {
    KVTRIAGE_ASSIGN_OR_RETURN(KvView view, Resolve(memory, *spec.k_scales, written, field, pins));
    layer.k.scales = ScalesIn(view);
    if (spec.v_in_k) layer.v.scales = layer.k.scales;
    layer.companions.push_back(view);
  }
  if (spec.v_scales) {
    KVTRIAGE_ASSIGN_OR_RETURN(KvView view, Resolve(memory, *spec.v_scales, written, field, pins));
    layer.v.scales = ScalesIn(view);
    layer.companions.push_back(view);
  }
  for (const ViewSpec& companion : spec.companions) {
    KVTRIAGE_ASSIGN_OR_RETURN(KvView view, Resolve(memory, companion, written, field, pins));
    layer.companions.push_back(view);
  }
  return layer;
}

// Whether rows mean the same in both views: copied bytes can be read with the other description.
bool SameRows(const KvView& x, const KvView& y) {
  const ViewLayout &a = x.layout, &b = y.layout;
  return a.heads == b.heads && a.row_elems == b.row_elems &&
         a.opaque_row_bytes == b.opaque_row_bytes &&
         (a.opaque() || (a.dtype == b.dtype && a.scale == b.scale)) &&
         (x.scales.base == nullptr) == (y.scales.base == nullptr);
}

// Whether V is the same part of K's rows in both layers, or of neither's.
bool SameSlice(const PlanLayer& a, const PlanLayer& b) {
  return a.v_in_k == b.v_in_k && a.v_first_elem == b.v_first_elem;
}

bool SameRows(const PlanLayer& a, const PlanLayer& b) {
  const auto same = [](const KvView& x, const KvView& y) { return SameRows(x, y); };
  return SameRows(a.k, b.k) && SameRows(a.v, b.v) && SameSlice(a, b) &&
         std::equal(a.companions.begin(), a.companions.end(), b.companions.begin(),
                    b.companions.end(), same);
}

// A view of a call's layer and where it lies.
struct PlacedView {
  RegionPlace place;  // of the view's first byte
  const ViewLayout* layout = nullptr;
};

absl::StatusOr<std::vector<PlacedView>> Places(SessionMemory& memory, const PlanCache& cache,
                                               PinSet& pins) {
  std::vector<PlacedView> places;
  const auto add = [&](const ViewSpec& view, const std::string&) -> absl::Status {
    KVTRIAGE_ASSIGN_OR_RETURN(const RegionPin* pin, pins.Pin(memory, view.region_id, "cache_id"));
    places.push_back({pin->region().place(), &view.layout});
    places.back().place.offset += view.offset;
    return absl::OkStatus();
  };
  for (const PlanLayer& layer : cache.layers) {
    KVTRIAGE_RETURN_IF_ERROR(cache.registered->spec.layers[layer.index].ForEachView(add));
  }
  return places;
}

}  // namespace

absl::StatusOr<PlanCache> PlanLayers(SessionMemory& memory, uint64_t cache_id,
                                     std::span<const uint32_t> indexes, bool written,
                                     std::string_view field, PinSet& pins) {
  PlanCache cache;
  absl::StatusOr<std::shared_ptr<const RegisteredCache>> found = memory.FindCache(cache_id);
  if (!found.ok()) return MemoryUnknown(field);
  cache.registered = *std::move(found);
  const std::vector<LayerSpec>& layers = cache.registered->spec.layers;
  std::vector<uint32_t> chosen(indexes.begin(), indexes.end());
  if (chosen.empty()) {
    chosen.resize(layers.size());
    std::iota(chosen.begin(), chosen.end(), 0u);
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] >= layers.size()) {
      return absl::Status(
          Error(ErrorReason::kIndexOutOfRange, "layers_le", "no such layer in the cache")
              .Index(i)
              .Got(chosen[i])
              .Limit(layers.size()));
    }
    KVTRIAGE_ASSIGN_OR_RETURN(PlanLayer layer,
                              ResolveLayer(memory, layers[chosen[i]], written, field, pins));
    layer.index = chosen[i];
    layer.rope = cache.registered->spec.RopeOf(chosen[i]);
    cache.layers.push_back(std::move(layer));
  }
  return cache;
}

absl::Status CheckMovable(const PlanCache& cache, std::string_view field) {
  for (const PlanLayer& layer : cache.layers) {
    if (layer.movable) continue;
    return Error(ErrorReason::kLayerNotMovable, field,
                 "the engine derives this layer's mask or bias from the place of a row")
        .Index(layer.index);
  }
  return absl::OkStatus();
}

absl::Status CheckSameGeometry(const PlanCache& from, const PlanCache& to) {
  for (size_t i = 0; i < from.layers.size(); ++i) {
    if (SameRows(from.layers[i], to.layers[i])) continue;
    return Error(ErrorReason::kGeometryInvalid, "act.copy_to.cache_id",
                 "heads or row encodings differ from the source's")
        .Index(i);
  }
  return absl::OkStatus();
}

absl::Status CheckApart(SessionMemory& memory, const PlanCache& from, const PlanCache& to,
                        PinSet& pins) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<PlacedView> sources, Places(memory, from, pins));
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<PlacedView> targets, Places(memory, to, pins));
  for (const PlacedView& target : targets) {
    for (const PlacedView& source : sources) {
      if (!target.place.SameObject(source.place)) continue;
      if (!ViewsAlias(source.place.offset, *source.layout, target.place.offset, *target.layout)) {
        continue;
      }
      return Error(ErrorReason::kDestinationOverlap, "act.copy_to.cache_id",
                   "the two caches share memory; copy within one cache instead");
    }
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
