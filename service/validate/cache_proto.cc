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

// One view of a layer; `field` is its name in the layer.
absl::StatusOr<ViewSpec> ParseLayerView(const v1::View& view, const std::string& field,
                                        uint32_t regions) {
  auto spec = ParseView(view);
  if (!spec.ok()) return UnderField(spec.status(), field);
  if (spec->region_id < kFirstRegionId && spec->region_id > regions) {
    return Error(ErrorReason::kFieldInvalid, field + ".region_id",
                 "no region with this index in the call")
        .Got(spec->region_id)
        .Limit(regions);
  }
  return spec;
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

absl::Status ParseValues(const v1::LayerSpec& layer, uint32_t regions, LayerSpec& spec) {
  if (!layer.has_v()) return Missing("v");
  KVTRIAGE_ASSIGN_OR_RETURN(spec.v, ParseLayerView(layer.v(), "v", regions));
  KVTRIAGE_RETURN_IF_ERROR(CheckSameRows("v", spec.v.layout, spec.k.layout));
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

absl::Status ParseKind(const v1::LayerSpec& layer, LayerSpec& spec) {
  // MLA, sliding, chunked and recurrent layers.
  KVTRIAGE_RETURN_IF_ERROR(CheckEnum("kind", layer.kind(), v1::LayerKind_IsValid, {2, 3, 5, 6}));
  if (layer.kind() == v1::LAYER_KIND_ALIBI) spec.kind = LayerKind::kAlibi;
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
