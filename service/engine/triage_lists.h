// How the lists of one sequence are numbered: layer-major, then KV head, as far as the granularity
// tells them apart. Serves kept sets and explicit protected rows alike.
#ifndef KVTRIAGE_SERVICE_ENGINE_TRIAGE_LISTS_H_
#define KVTRIAGE_SERVICE_ENGINE_TRIAGE_LISTS_H_

#include <cstdint>
#include <vector>

#include "service/engine/triage.h"

namespace kvtriage {

struct ListLayout {
  std::vector<uint32_t> first;  // per layer
  uint32_t step = 0;            // 1 when every KV head has its own list
  uint32_t count = 0;

  uint32_t Of(uint32_t layer, uint32_t head) const { return first[layer] + head * step; }
};

ListLayout LayOutLists(const TriageSequence& sequence, Granularity granularity);

inline uint32_t KvHeads(const TriageLayer& layer) { return layer.rows.k.layout.heads; }

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_TRIAGE_LISTS_H_
