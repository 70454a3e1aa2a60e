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

bool UsesReduce(Scorer scorer) {
  return UsesQueries(scorer) || scorer == Scorer::kExpectedAttention;
}

}  // namespace kvtriage
