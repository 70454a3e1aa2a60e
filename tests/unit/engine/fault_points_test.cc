// Every fault point of a call's way through the engine is passed.
#include "service/observe/fault_point.h"

#include <gtest/gtest.h>

#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

#ifdef KVTRIAGE_FAULT_POINTS
TEST(FaultPoints, CallsPassAllOfTheirs) {
  EngineWorld world;
  const auto session = world.Attach();
  WorkerCache cache(session, {});
  ASSERT_TRUE(SetFaults("").ok());
  CompressSpec spec = RandomSpec(
      cache, {cache.Sequence(1, 16, {0, 1, 2, 3}), cache.Sequence(2, 16, {4, 5, 6, 7})}, 5);
  ActInPlace(spec);
  ASSERT_EQ(ReasonOf(RunCall(world, session, spec).status), "ok");
  CompressSpec copy = RandomSpec(cache, {cache.Sequence(3, 16, {0, 1, 2, 3})}, 5);
  copy.sequences[0].destination = {8, 9};
  ActCopy(copy, cache.id());
  ASSERT_EQ(ReasonOf(RunCall(world, session, copy).status), "ok");
  ASSERT_TRUE(world.engine().WaitIdle(10'000));
  for (const std::string_view name : kFaultPointNames) {
    const bool ours = name.starts_with("admit.") || name.starts_with("plan.") ||
                      name.starts_with("lane.") || name.starts_with("ledger.") ||
                      name.starts_with("move.") || name.starts_with("copy.") ||
                      name.starts_with("result.");
    if (ours) {
      EXPECT_GT(FaultPointPassings(name), 0u) << name;
    }
  }
}
#endif

}  // namespace
}  // namespace kvtriage
