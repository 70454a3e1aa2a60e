// A group of layers that share one block table, as a worker describes it; checked by
// service/validate, kept by service/memory, used by service/engine.
#ifndef KVTRIAGE_SERVICE_POLICY_CACHE_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_CACHE_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/status_macros.h"
#include "kvtriage/kernels/rotate.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// A view inside a region: the resolved base is region base + offset.
struct ViewSpec {
  uint64_t region_id = 0;  // in a registration, ids below 2^32 are 1-based indexes into its regions
  uint64_t offset = 0;
  ViewLayout layout;
};

enum class LayerKind : uint8_t { kFull, kMla, kSliding, kAlibi };

struct LayerSpec {
  LayerKind kind = LayerKind::kFull;
  uint32_t layer_index = 0;  // of the whole model
  uint32_t q_heads = 0;
  uint32_t kv_heads = 0;
  ViewSpec k, v;
  // kMla: v is a part of k's rows, from this element on, and moves with them.
  bool v_in_k = false;
  uint32_t v_first_elem = 0;
  // float32 scales of fp8 rows, one per row, as opaque rows of 4 bytes. With v_in_k those of k hold
  // for both.
  std::optional<ViewSpec> k_scales, v_scales;
  std::vector<ViewSpec> companions;  // move with the rows, never scored
  uint32_t rope_index = 0;           // 1-based index into CacheSpec::ropes; 0 = no rotary part
  bool position_aware = false;       // kAlibi: the bias follows stored positions
  uint32_t sliding_window = 0;       // kSliding: rows that a query sees, its own included; else 0

  // Whether rows may change their place: the engine must not derive a mask or a bias from it.
  bool movable() const {
    return kind != LayerKind::kSliding && (kind != LayerKind::kAlibi || position_aware);
  }

  // Calls use(view, name in the message) for every view that lies in memory of its own; use's error
  // ends it.
  template <class Use>
  absl::Status ForEachView(const Use& use) const {
    KVTRIAGE_RETURN_IF_ERROR(use(k, "k"));
    if (!v_in_k) KVTRIAGE_RETURN_IF_ERROR(use(v, "v"));
    if (k_scales) KVTRIAGE_RETURN_IF_ERROR(use(*k_scales, "k.scale.per_row"));
    if (v_scales) KVTRIAGE_RETURN_IF_ERROR(use(*v_scales, "v.scale.per_row"));
    for (size_t i = 0; i < companions.size(); ++i) {
      KVTRIAGE_RETURN_IF_ERROR(use(companions[i], "companions[" + std::to_string(i) + "]"));
    }
    return absl::OkStatus();
  }
};

struct CacheSpec {
  std::vector<LayerSpec> layers;
  std::vector<Rope> ropes;
  uint32_t num_layers = 0;  // of the whole model

  // Rotary data of layer `index`; null when it has no rotary part.
  const Rope* RopeOf(uint32_t index) const {
    const uint32_t rope = layers[index].rope_index;
    return rope == 0 || ropes[rope - 1].rotary_dim == 0 ? nullptr : &ropes[rope - 1];
  }
};

// A dense input inside a region. Extents of axes that do not apply are 1.
struct TensorSpec {
  uint64_t region_id = 0;
  uint64_t offset = 0;
  DType dtype = DType::kF32;
  uint32_t layers = 1, rows = 1, heads = 1, elems = 1;
  uint64_t layer_stride = 0, row_stride = 0, head_stride = 0, elem_stride = 0;  // bytes
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_CACHE_SPEC_H_
