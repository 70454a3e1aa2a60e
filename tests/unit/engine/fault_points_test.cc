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
  CacheShape shape;
  shape.ropes = {{.rotary_dim = 2, .speeds = {1}}};
  shape.rope_of = {1, 1};
  WorkerCache cache(session, shape);
  ASSERT_TRUE(SetFaults("").ok());
  CompressSpec spec = RandomSpec(
      cache, {cache.Sequence(1, 16, {0, 1, 2, 3}), cache.Sequence(2, 16, {4, 5, 6, 7})}, 5);
  ActInPlace(spec);
  ASSERT_EQ(ReasonOf(RunCall(world, session, spec).status), "ok");
  CompressSpec copy = RandomSpec(cache, {cache.Sequence(3, 16, {0, 1, 2, 3})}, 5);
  copy.sequences[0].destination = {8, 9};
  ActCopy(copy, cache.id());
  ASSERT_EQ(ReasonOf(RunCall(world, session, copy).status), "ok");
  RerotateSpec rerotate;
  rerotate.header.key = NewKey();
  rerotate.cache_id = cache.id();
  rerotate.sequence = cache.Sequence(4, 8, {0, 1});
  rerotate.sequence.positions.emplace().first = 3;
  rerotate.rows = 8;
  rerotate.new_positions.first = 0;
  rerotate.act.kind = ActKind::kInPlace;
  ASSERT_EQ(ReasonOf(Start(world, session, rerotate).Get().status), "ok");
  FuseSpec fuse;
  fuse.header.key = NewKey();
  fuse.cache_id = cache.id();
  fuse.sequence = cache.Sequence(5, 4, {2});
  fuse.rows = {1};
  TensorSpec tensor;
  tensor.region_id = cache.lent().region_id();
  tensor.offset = cache.tail_offset();
  tensor.layers = tensor.heads = 2;
  tensor.elem_stride = 4;
  tensor.head_stride = tensor.row_stride = tensor.layer_stride = 64;
  tensor.elems = cache.shape().dk;
  fuse.keys = tensor;
  tensor.elems = cache.shape().dv;
  fuse.values = tensor;
  ASSERT_EQ(ReasonOf(Start(world, session, fuse).Get().status), "ok");
  ASSERT_TRUE(world.engine().WaitIdle(10'000));
  for (const std::string_view name : kFaultPointNames) {
    const bool ours =
        name.starts_with("admit.") || name.starts_with("plan.") || name.starts_with("lane.") ||
        name.starts_with("ledger.") || name.starts_with("move.") || name.starts_with("copy.") ||
        name.starts_with("rerotate.") || name.starts_with("fuse.") || name.starts_with("result.");
    if (ours) {
      EXPECT_GT(FaultPointPassings(name), 0u) << name;
    }
  }
}
#endif

}  // namespace
}  // namespace kvtriage
