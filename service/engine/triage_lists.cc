#include "service/engine/triage_lists.h"

namespace kvtriage {

ListLayout LayOutLists(const TriageSequence& sequence, Granularity granularity) {
  ListLayout layout;
  layout.step = granularity == Granularity::kPerHead ? 1 : 0;
  for (const TriageLayer& layer : sequence.layers) {
    layout.first.push_back(layout.count);
    if (granularity == Granularity::kPerHead) layout.count += KvHeads(layer);
    if (granularity == Granularity::kPerLayer) layout.count += 1;
  }
  if (granularity == Granularity::kPerSequence) layout.count = 1;
  return layout;
}

}  // namespace kvtriage
