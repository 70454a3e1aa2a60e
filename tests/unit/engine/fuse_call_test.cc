// Fuse: the named rows hold the tensors' bytes, and every other byte of the memory is as it was.
#include "service/engine/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/engine/ledger_view.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

using wire::LedgerUnit;

const CacheShape kShape{.heads = {2, 2}, .dk = 4, .dv = 6, .companion_bytes = 3};

class Fusion : public testing::Test {
 protected:
  // The tail of the memory holds keys, then values, [layers][rows][heads][elems].
  TensorSpec Tensor(uint64_t offset, uint32_t rows, uint32_t elems) {
    TensorSpec tensor;
    tensor.region_id = cache_.lent().region_id();
    tensor.offset = cache_.tail_offset() + offset;
    tensor.dtype = kShape.dtype;
    tensor.layers = 2;
    tensor.rows = rows;
    tensor.heads = 2;
    tensor.elems = elems;
    tensor.elem_stride = ElementBytes(kShape.dtype);
    tensor.head_stride = tensor.elem_stride * elems;
    tensor.row_stride = tensor.head_stride * 2;
    tensor.layer_stride = tensor.row_stride * rows;
    return tensor;
  }
  FuseSpec Spec(std::vector<int32_t> rows, uint64_t id = 7) {
    FuseSpec spec;
    spec.header.key = NewKey();
    spec.cache_id = cache_.id();
    spec.sequence = cache_.Sequence(id, 10, {5, 2, 9});
    spec.rows = std::move(rows);
    const auto count = static_cast<uint32_t>(spec.rows.size());
    if (count > 0) {
      spec.keys = Tensor(0, count, kShape.dk);
      spec.values = Tensor(16384, count, kShape.dv);
    }
    return spec;
  }
  FuseSpec Full() {
    FuseSpec spec = Spec({});
    spec.full = true;
    spec.keys = Tensor(0, 10, kShape.dk);
    spec.values = Tensor(16384, 10, kShape.dv);
    return spec;
  }
  CallResult Do(FuseSpec spec) { return Start(world_, session_, std::move(spec)).Get(); }

  std::vector<std::byte> SourceRow(const TensorSpec& tensor, uint32_t layer, uint32_t head,
                                   uint64_t row) {
    const std::byte* const at = cache_.lent().data() + tensor.offset + layer * tensor.layer_stride +
                                row * tensor.row_stride + head * tensor.head_stride;
    return {at, at + tensor.head_stride};
  }
  // Memory after the call is memory before with the tensors' rows in their places.
  void ExpectFused(const FuseSpec& spec, const std::vector<std::byte>& before) {
    const std::vector<std::byte> after = cache_.lent().Copy();
    for (uint32_t l = 0; l < 2; ++l) {
      for (uint32_t h = 0; h < 2; ++h) {
        for (int32_t row = 0; row < 10; ++row) {
          const auto at = std::find(spec.rows.begin(), spec.rows.end(), row);
          const bool written = spec.full || at != spec.rows.end();
          std::vector<std::byte> want = cache_.Row(before, l, h, spec.sequence.table, row);
          if (written) {
            const auto j = static_cast<uint64_t>(spec.full ? row : at - spec.rows.begin());
            const auto key = SourceRow(*spec.keys, l, h, j),
                       value = SourceRow(*spec.values, l, h, j);
            std::copy(key.begin(), key.end(), want.begin());
            std::copy(value.begin(), value.end(), want.begin() + static_cast<int64_t>(key.size()));
          }
          EXPECT_TRUE(cache_.Row(after, l, h, spec.sequence.table, row) == want)
              << "layer " << l << " head " << h << " row " << row;
        }
      }
    }
    // What the sequence does not own: all blocks but three, and the tail.
    const std::vector<int32_t> others = {0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15};
    for (uint32_t l = 0; l < 2; ++l) {
      for (uint64_t slot = 0; slot < others.size() * kShape.block_slots; ++slot) {
        ASSERT_TRUE(cache_.Row(after, l, 1, others, slot) ==
                    cache_.Row(before, l, 1, others, slot));
      }
    }
    EXPECT_TRUE(std::equal(before.begin() + static_cast<int64_t>(cache_.tail_offset()),
                           before.end(),
                           after.begin() + static_cast<int64_t>(cache_.tail_offset())));
  }
  void ExpectRefused(FuseSpec spec, const char* reason, const char* field) {
    const std::vector<std::byte> before = cache_.lent().Copy();
    const CallResult result = Do(std::move(spec));
    EXPECT_EQ(ReasonOf(result.status), reason) << result.status.ToString();
    EXPECT_EQ(FieldOf(result.status), field);
    EXPECT_TRUE(cache_.lent().Copy() == before);
  }

  EngineWorld world_{{}, nullptr, MakeCpuBackend(2)};
  std::shared_ptr<Session> session_ = world_.Attach();
  WorkerCache cache_{session_, kShape};
};

TEST_F(Fusion, PartialWritesTheNamedRows) {
  const LedgerView ledger(*session_->ledger());
  const std::vector<std::byte> before = cache_.lent().Copy();
  FuseSpec spec = Spec({1, 2, 6, 9});
  spec.ledger_slot = 1;
  CallResult result = Do(spec);
  ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
  EXPECT_EQ(std::get<FuseAnswer>(result.answer->body).rows_written, 4u);
  EXPECT_EQ(std::get<FuseAnswer>(result.answer->body).kv_revision, 1u);
  ExpectFused(spec, before);
  EXPECT_EQ(ledger.slot(1).op, static_cast<uint32_t>(wire::LedgerOp::kFuse));
  EXPECT_EQ(ledger.States(1), (std::vector<LedgerUnit>(2, LedgerUnit::kDone)));
  EXPECT_EQ(ledger.Counts(1), (std::vector<uint32_t>(2, 10)));
  // Twice gives the same bytes; the same key gives the stored answer.
  const std::vector<std::byte> once = cache_.lent().Copy();
  result = Do(spec);
  EXPECT_TRUE(result.replayed);
  spec.header.key = NewKey();
  EXPECT_EQ(ReasonOf(Do(spec).status), "sequence_stale");
  spec.sequence.kv_revision = 1;
  EXPECT_EQ(ReasonOf(Do(spec).status), "ok");
  EXPECT_TRUE(cache_.lent().Copy() == once);
}

TEST_F(Fusion, FullReplacesAllRows) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  const FuseSpec spec = Full();
  const CallResult result = Do(spec);
  ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
  EXPECT_EQ(std::get<FuseAnswer>(result.answer->body).rows_written, 10u);
  ExpectFused(spec, before);
}

// A fused row stays where it is, so the engine's mask does.
TEST_F(Fusion, WritesRowsOfSlidingLayers) {
  CacheSpec sliding = cache_.spec();
  sliding.layers[1].kind = LayerKind::kSliding;
  sliding.layers[1].sliding_window = 4;
  const std::vector<std::byte> before = cache_.lent().Copy();
  FuseSpec spec = Spec({1, 2, 6, 9});
  spec.cache_id = RegisterCache(session_, sliding);
  const CallResult result = Do(spec);
  ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
  ExpectFused(spec, before);
}

TEST_F(Fusion, NoRowsIsNoWrite) {
  const CallResult result = Do(Spec({}));
  ASSERT_EQ(ReasonOf(result.status), "ok");
  EXPECT_EQ(std::get<FuseAnswer>(result.answer->body).kv_revision, 0u);
}

TEST_F(Fusion, Refusals) {
  FuseSpec spec = Spec({1, 5});
  spec.sequence.sharing = Sharing::kPrefix;
  spec.sequence.shared_blocks = 1;
  ExpectRefused(spec, "block_shared", "sequence.table");
  spec = Full();
  spec.sequence.sharing = Sharing::kUnknown;
  ExpectRefused(spec, "block_shared", "sequence.table");
  spec = Spec({1, 5});
  spec.values.reset();
  ExpectRefused(spec, "field_missing", "values");
  spec = Spec({1, 5});
  spec.keys->layers = 1;
  ExpectRefused(spec, "geometry_invalid", "keys.layers");
  spec = Spec({1, 5});
  spec.keys->heads = 1;
  ExpectRefused(spec, "geometry_invalid", "keys.heads");
  spec = Spec({1, 5});
  spec.values->elems = 5;
  ExpectRefused(spec, "geometry_invalid", "values.elems");
  spec = Spec({1, 5});
  spec.values->dtype = DType::kBF16;
  ExpectRefused(spec, "geometry_invalid", "values.dtype");
  spec = Spec({1, 5});
  spec.keys->region_id = 1;
  ExpectRefused(spec, "memory_unknown", "keys");
  spec = Spec({1, 5});
  spec.keys->offset = cache_.lent().bytes() - 8;
  ExpectRefused(spec, "range_out_of_region", "keys");
  spec = Spec({1, 5});
  spec.keys->offset = cache_.spec().layers[1].v.offset;
  ExpectRefused(spec, "view_overlap", "keys");
  spec = Spec({1, 5});
  spec.ledger_slot = 77;
  ExpectRefused(spec, "field_invalid", "in_place.ledger_slot");
  spec = Spec({1, 5});
  spec.layers = {0, 2};
  ExpectRefused(spec, "index_out_of_range", "layers_le");
  spec = Spec({1, 5});
  spec.sequence.table = {5, 5, 9};
  ExpectRefused(spec, "block_duplicate", "sequence.table");
}

// The rows of a layer that is written only in part are named by number, behind padding too.
TEST_F(Fusion, OneLayerBehindPadding) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  FuseSpec spec = Spec({0, 8});
  spec.layers = {1};
  spec.sequence.first_slot = 2;
  spec.keys->layers = spec.values->layers = 1;
  ASSERT_EQ(ReasonOf(Do(spec).status), "ok");
  const std::vector<std::byte> after = cache_.lent().Copy();
  for (uint64_t slot = 0; slot < 12; ++slot) {
    const bool written = slot == 2 || slot == 10;
    EXPECT_EQ(cache_.Row(after, 1, 0, {5, 2, 9}, slot) != cache_.Row(before, 1, 0, {5, 2, 9}, slot),
              written);
    EXPECT_TRUE(cache_.Row(after, 0, 0, {5, 2, 9}, slot) ==
                cache_.Row(before, 0, 0, {5, 2, 9}, slot));
  }
}

TEST(FusionFailure, TheSameFuseRepairsIt) {
  EngineWorld world;
  const std::shared_ptr<Session> session = world.Attach();
  WorkerCache cache(session, kShape);
  const LedgerView ledger(*session->ledger());
  FuseSpec spec;
  spec.header.key = NewKey();
  spec.cache_id = cache.id();
  spec.sequence = cache.Sequence(3, 4, {5});
  spec.full = true;
  TensorSpec tensor;
  tensor.region_id = cache.lent().region_id();
  tensor.offset = cache.tail_offset();
  tensor.layers = 2;
  tensor.rows = 4;
  tensor.heads = 2;
  tensor.elems = 4;
  tensor.elem_stride = 4;
  tensor.head_stride = 16;
  tensor.row_stride = 32;
  tensor.layer_stride = 128;
  spec.keys = tensor;
  tensor.elems = 6;
  tensor.head_stride = 24;
  tensor.row_stride = 48;
  tensor.layer_stride = 192;
  spec.values = tensor;
  world.hooks().fail_writes = true;
  CallResult result = Start(world, session, spec).Get();
  EXPECT_EQ(ReasonOf(result.status), "move_failed");
  EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(ledger.States(0), (std::vector<LedgerUnit>(2, LedgerUnit::kMoving)));
  world.hooks().fail_writes = false;
  spec.header.key = NewKey();
  result = Start(world, session, spec).Get();
  EXPECT_EQ(ReasonOf(result.status), "ok");
  EXPECT_EQ(ledger.States(0), (std::vector<LedgerUnit>(2, LedgerUnit::kDone)));
}

}  // namespace
}  // namespace kvtriage
