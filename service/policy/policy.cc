#include "service/policy/policy.h"

namespace kvtriage {

bool AddsUp(Scorer scorer) {
  switch (scorer) {
    case Scorer::kAttention:
    case Scorer::kObcValue:
    case Scorer::kObcKey:
    case Scorer::kObcJoint:
    case Scorer::kDrop:
    case Scorer::kVatp:
      return true;
    default:
      return false;
  }
}

bool UsesReduce(Scorer scorer) {
  return UsesQueries(scorer) || scorer == Scorer::kExpectedAttention;
}

}  // namespace kvtriage
