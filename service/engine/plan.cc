#include "service/engine/plan.h"

#include <algorithm>

#include "kernels/core/checked_math.h"

namespace kvtriage {

uint64_t PlanLayer::row_bytes() const {
  uint64_t bytes = k.layout.row_bytes() + (v_in_k ? 0 : v.layout.row_bytes());
  for (const KvView& companion : companions) bytes += companion.layout.row_bytes();
  return bytes;
}

uint64_t PlanCache::EntriesFor(uint64_t slots) const {
  uint64_t entries = 0;
  for (const PlanLayer& layer : layers) {
    entries = std::max(entries, CeilDiv(slots, layer.k.layout.block_slots));
  }
  return entries;
}

}  // namespace kvtriage
