#include "service/policy/policy.h"

namespace kvtriage {

bool UsesQueries(Scorer scorer) { return scorer != Scorer::kRecency && scorer != Scorer::kRandom; }

}  // namespace kvtriage
