// Runs a check once for every instruction set that this processor has, the plain scalar one
// included.
#ifndef KVTRIAGE_TESTS_SUPPORT_EACH_TARGET_H_
#define KVTRIAGE_TESTS_SUPPORT_EACH_TARGET_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace kvtriage {

// Calls check() with the dispatch forced to each target in turn; gives the choice back afterwards.
template <class Check>
void ForEachTarget(Check check) {
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::GetChosenTarget().Update(target);
    check();
    hwy::GetChosenTarget().DeInit();
  }
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_EACH_TARGET_H_
