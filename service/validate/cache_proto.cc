#include "service/validate/cache_proto.h"

#include <set>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/validate/field_checks.h"
#include "service/validate/limits.h"
#include "service/validate/rope_proto.h"
#include "service/validate/view_proto.h"

namespace kvtriage {
namespace {

absl::Status CheckRegion(const ViewSpec& view, const std::string& field, uint32_t regions) {
  if (view.region_id >= kFirstRegionId || view.region_id <= regions) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, field + ".region_id",
               "no region with this index in the call")
      .Got(view.region_id)
      .Limit(regions);
}

// One view of a layer; `field` is its name in the layer.
absl::StatusOr<ViewSpec> ParseLayerView(const v1::View& view, const std::string& field,
                                        uint32_t regions) {
  auto spec = ParseView(view);
  if (!spec.ok()) return UnderField(spec.status(), field);
  KVTRIAGE_RETURN_IF_ERROR(CheckRegion(*spec, field, regions));
  return spec;
}

absl::Status ParseLayerScales(const v1::View& view, const ViewSpec& rows, const std::string& field,
                              uint32_t regions, std::optional<ViewSpec>& out) {
  auto scales = ParseRowScales(view, rows.layout);
  if (!scales.ok()) return UnderField(scales.status(), field);
  out = *scales;
  return out ? CheckRegion(*out, field + ".scale.per_row", regions) : absl::OkStatus();
}

absl::Status CheckHeads(const v1::LayerSpec& layer) {
  if (layer.q_heads() == 0 || layer.kv_heads() == 0) {
    return Error(ErrorReason::kFieldInvalid, layer.q_heads() == 0 ? "q_heads" : "kv_heads",
                 "no heads (got = query heads, limit = KV heads)")
        .Got(layer.q_heads())
        .Limit(layer.kv_heads());
  }
  if (layer.q_heads() > kMaxQueryHeads) {
    return Error(ErrorReason::kTooMany, "q_heads", "too many query heads")
        .Got(layer.q_heads())
        .Limit(kMaxQueryHeads);
  }
  if (layer.kv_heads() > kMaxKvHeads) {
    return Error(ErrorReason::kTooMany, "kv_heads", "too many KV heads")
        .Got(layer.kv_heads())
        .Limit(kMaxKvHeads);
  }
  if (layer.q_heads() % layer.kv_heads() != 0) {
    return Error(ErrorReason::kGeometryInvalid, "q_heads", "not a multiple of kv_heads")
        .Got(layer.q_heads())
        .Limit(layer.kv_heads());
  }
  return absl::OkStatus();
}

absl::Status CheckEqual(const std::string& field, uint32_t got, uint32_t want) {
  if (got == want) return absl::OkStatus();
  return Error(ErrorReason::kGeometryInvalid, field, "differs from what the layer's K says")
      .Got(got)
      .Limit(want);
}

// A row number means the same place in every view of a layer.
absl::Status CheckSameRows(const std::string& field, const ViewLayout& view, const ViewLayout& k) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEqual(field + ".block_slots", view.block_slots, k.block_slots));
  KVTRIAGE_RETURN_IF_ERROR(CheckEqual(field + ".heads", view.heads, k.heads));
  return CheckEqual(field + ".num_blocks", view.num_blocks, k.num_blocks);
}

// V as a part of K's rows.
absl::Status ParseSlice(const v1::LayerSpec& layer, LayerSpec& spec) {
  const ViewLayout& k = spec.k.layout;
  spec.v_in_k = true;
  spec.v = spec.k;
  if (k.opaque()) {
    if (layer.v_elems() == 0 && layer.v_in_k_first_elem() == 0) return absl::OkStatus();
    return Invalid(layer.v_elems() == 0 ? "v_in_k_first_elem" : "v_elems",
                   "an opaque row has no elements");
  }
  if (layer.v_elems() == 0) return Invalid("v_elems", "extent is 0");
  const uint64_t end = uint64_t{layer.v_in_k_first_elem()} + layer.v_elems();
  if (end > k.row_elems) {
    return Error(ErrorReason::kGeometryInvalid, "v_elems", "V ends behind the K row")
        .Got(end)
        .Limit(k.row_elems);
  }
  // The row ends inside 63 bits, so a part of it does.
  spec.v.offset += layer.v_in_k_first_elem() * k.elem_stride;
  spec.v.layout.row_elems = layer.v_elems();
  spec.v_first_elem = layer.v_in_k_first_elem();
  return absl::OkStatus();
}

absl::Status ParseValues(const v1::LayerSpec& layer, uint32_t regions, LayerSpec& spec) {
  const bool slice = layer.value_case() == v1::LayerSpec::kVInKFirstElem;
  if (slice && spec.kind != LayerKind::kMla) {
    return Error(ErrorReason::kViewOverlap, "v_in_k_first_elem",
                 "only MLA keeps V inside K's rows");
  }
  const bool opaque_mla = spec.kind == LayerKind::kMla && spec.k.layout.opaque() && !layer.has_v();
  if (slice || opaque_mla) return ParseSlice(layer, spec);
  if (!layer.has_v()) return Missing("v");
  KVTRIAGE_ASSIGN_OR_RETURN(spec.v, ParseLayerView(layer.v(), "v", regions));
  KVTRIAGE_RETURN_IF_ERROR(CheckSameRows("v", spec.v.layout, spec.k.layout));
  KVTRIAGE_RETURN_IF_ERROR(ParseLayerScales(layer.v(), spec.v, "v", regions, spec.v_scales));
  if (layer.v_elems() != spec.v.layout.row_elems) {
    return Error(ErrorReason::kGeometryInvalid, "v_elems", "differs from v.row_elems")
        .Got(layer.v_elems())
        .Limit(spec.v.layout.row_elems);
  }
  return absl::OkStatus();
}

absl::Status ParseCompanions(const v1::LayerSpec& layer, uint32_t regions, LayerSpec& spec) {
  const auto count = static_cast<uint32_t>(layer.companions_size());
  if (count > kMaxCompanionsPerLayer) {
    return Error(ErrorReason::kTooMany, "companions", "too many companions")
        .Got(count)
        .Limit(kMaxCompanionsPerLayer);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const std::string field = Indexed("companions", i);
    KVTRIAGE_ASSIGN_OR_RETURN(ViewSpec view, ParseLayerView(layer.companions(i), field, regions));
    if (!view.layout.opaque()) {
      return Invalid(field + ".opaque_row_bytes", "a companion must be opaque");
    }
    KVTRIAGE_RETURN_IF_ERROR(CheckSameRows(field, view.layout, spec.k.layout));
    spec.companions.push_back(view);
  }
  return absl::OkStatus();
}

absl::Status NotBuilt(v1::LayerKind kind, std::string_view text) {
  return Error(ErrorReason::kUnsupported, "kind", text).Got(static_cast<uint64_t>(kind));
}

absl::Status ParseKind(const v1::LayerSpec& layer, LayerSpec& spec) {
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("kind", layer.kind(), v1::LayerKind_IsValid));
  switch (layer.kind()) {
    case v1::LAYER_KIND_CHUNKED:
      return NotBuilt(layer.kind(), "chunked layers (LAYER_KIND_CHUNKED) are not supported");
    case v1::LAYER_KIND_RECURRENT:
      return NotBuilt(layer.kind(), "recurrent layers (LAYER_KIND_RECURRENT) are not supported");
    case v1::LAYER_KIND_MLA:
      spec.kind = LayerKind::kMla;
      break;
    case v1::LAYER_KIND_SLIDING:
      spec.kind = LayerKind::kSliding;
      break;
    case v1::LAYER_KIND_ALIBI:
      spec.kind = LayerKind::kAlibi;
      break;
    default:
      break;
  }
  if (spec.kind == LayerKind::kMla && layer.kv_heads() != 1) {
    return Error(ErrorReason::kGeometryInvalid, "kv_heads", "MLA has one KV head")
        .Got(layer.kv_heads())
        .Limit(1);
  }
  spec.sliding_window = layer.sliding_window();
  if (spec.kind == LayerKind::kSliding && spec.sliding_window == 0) {
    return Missing("sliding_window");
  }
  if (spec.kind != LayerKind::kSliding && spec.sliding_window != 0) {
    return Invalid("sliding_window", "only for sliding layers");
  }
  spec.position_aware = layer.position_aware();
  if (spec.position_aware && spec.kind != LayerKind::kAlibi) {
    return Invalid("position_aware", "only for ALiBi layers");
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerSpec> ParseLayer(const v1::LayerSpec& layer, uint32_t num_layers,
                                     uint32_t regions) {
  if (layer.layer_index() >= num_layers) {
    return Error(ErrorReason::kFieldInvalid, "layer_index", "not below num_layers")
        .Got(layer.layer_index())
        .Limit(num_layers);
  }
  KVTRIAGE_RETURN_IF_ERROR(CheckHeads(layer));
  LayerSpec spec;
  KVTRIAGE_RETURN_IF_ERROR(ParseKind(layer, spec));
  spec.layer_index = layer.layer_index();
  spec.q_heads = layer.q_heads();
  spec.kv_heads = layer.kv_heads();
  if (!layer.has_k()) return Missing("k");
  KVTRIAGE_ASSIGN_OR_RETURN(spec.k, ParseLayerView(layer.k(), "k", regions));
  KVTRIAGE_RETURN_IF_ERROR(CheckEqual("k.heads", spec.k.layout.heads, spec.kv_heads));
  KVTRIAGE_RETURN_IF_ERROR(ParseLayerScales(layer.k(), spec.k, "k", regions, spec.k_scales));
  KVTRIAGE_RETURN_IF_ERROR(ParseValues(layer, regions, spec));
  KVTRIAGE_RETURN_IF_ERROR(ParseCompanions(layer, regions, spec));
  spec.rope_index = layer.rope_index();
  return spec;
}

}  // namespace

absl::StatusOr<CacheSpec> ParseCache(const v1::CacheSpec& cache, uint32_t regions) {
  const auto count = static_cast<uint32_t>(cache.layers_size());
  if (count == 0) return Missing("layers");
  if (count > kMaxLayersPerCache) {
    return Error(ErrorReason::kTooMany, "layers", "too many layers")
        .Got(count)
        .Limit(kMaxLayersPerCache);
  }
  if (cache.num_layers() == 0) return Missing("num_layers");
  if (cache.num_layers() > kMaxModelLayers) {
    return Error(ErrorReason::kTooMany, "num_layers", "more layers than a model has")
        .Got(cache.num_layers())
        .Limit(kMaxModelLayers);
  }
  CacheSpec spec;
  spec.num_layers = cache.num_layers();
  KVTRIAGE_ASSIGN_OR_RETURN(spec.ropes, ParseRopes(cache));
  spec.layers.reserve(count);
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string field = Indexed("layers", i);
    auto layer = ParseLayer(cache.layers(i), spec.num_layers, regions);
    if (!layer.ok()) return UnderField(layer.status(), field);
    if (auto rope = CheckLayerRope(spec.ropes, *layer); !rope.ok()) return UnderField(rope, field);
    if (!seen.insert(layer->layer_index).second) {
      return Error(ErrorReason::kFieldInvalid, field + ".layer_index", "layer listed twice")
          .Index(i)
          .Got(layer->layer_index);
    }
    // One block table serves all layers, so a table entry must mean the same rows in each.
    if (i > 0) {
      const uint32_t slots = spec.layers.front().k.layout.block_slots;
      if (layer->k.layout.block_slots != slots) {
        return Error(ErrorReason::kGeometryInvalid, field + ".k.block_slots",
                     "differs from the first layer's")
            .Got(layer->k.layout.block_slots)
            .Limit(slots);
      }
    }
    spec.layers.push_back(*std::move(layer));
  }
  return spec;
}

}  // namespace kvtriage
