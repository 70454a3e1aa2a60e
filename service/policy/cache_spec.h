// A group of layers that share one block table, as a worker describes it; checked by
// service/validate, kept by service/memory, used by service/engine.
#ifndef KVTRIAGE_SERVICE_POLICY_CACHE_SPEC_H_
#define KVTRIAGE_SERVICE_POLICY_CACHE_SPEC_H_

#include <cstdint>
#include <vector>

#include "kvtriage/kernels/rotate.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// A view inside a region: the resolved base is region base + offset.
struct ViewSpec {
  uint64_t region_id = 0;  // in a registration, ids below 2^32 are 1-based indexes into its regions
  uint64_t offset = 0;
  ViewLayout layout;
};

enum class LayerKind : uint8_t { kFull, kAlibi };

struct LayerSpec {
  LayerKind kind = LayerKind::kFull;
  uint32_t layer_index = 0;  // of the whole model
  uint32_t q_heads = 0;
  uint32_t kv_heads = 0;
  ViewSpec k, v;
  std::vector<ViewSpec> companions;  // move with the rows, never scored
  uint32_t rope_index = 0;           // 1-based index into CacheSpec::ropes; 0 = no rotary part
  bool position_aware = false;       // kAlibi: the bias follows stored positions

  // Whether rows may change their place: the engine must not derive a mask or a bias from it.
  bool movable() const { return kind != LayerKind::kAlibi || position_aware; }
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
