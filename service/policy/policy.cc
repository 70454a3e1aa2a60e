#include "service/policy/policy.h"

namespace kvtriage {

bool UsesQueries(Scorer scorer) {
  switch (scorer) {
    case Scorer::kKeyNorm:
    case Scorer::kKeyDiff:
    case Scorer::kLagKv:
    case Scorer::kExpectedAttention:
    case Scorer::kRecency:
    case Scorer::kRandom:
      return false;
    default:
      return true;
  }
}

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
