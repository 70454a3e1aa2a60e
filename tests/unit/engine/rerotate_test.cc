// Rerotate and renumbering: the keys of the named rows against float64 loops over the memory
// before, and every other byte as it was.
#include "service/engine/rerotate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/support/golden_inputs.h"
#include "tests/unit/engine/ledger_view.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

using wire::LedgerUnit;

// Channels 1 to 4 turn; layers 0 and 1 have a rotary part, layer 2 has none.
const CacheShape kShape{
    .heads = {2, 1, 2},
    .dk = 6,
    .companion_bytes = 4,
    .ropes = {{.pairing = RopePairing::kHalf, .rotary_dim = 4, .offset = 1, .speeds = {1, 0.01}}},
    .rope_of = {1, 1, 0}};

class Rerotation : public testing::Test {
 protected:
  Rerotation() { FillWithNumbers(cache_); }

  static void FillWithNumbers(WorkerCache& cache) {
    const std::vector<float> grid = GridValues(5, cache.lent().bytes() / sizeof(float));
    std::memcpy(cache.lent().data(), grid.data(), grid.size() * sizeof(float));
  }

  // 10 rows in blocks 5, 2, 9, rotated for positions 20, 21, ...
  SequenceSpec Sequence(uint64_t id = 7) const {
    SequenceSpec sequence = cache_.Sequence(id, 10, {5, 2, 9});
    sequence.positions.emplace().first = 20;
    return sequence;
  }
  RerotateSpec Spec(uint32_t first_row, uint32_t rows, uint64_t to) const {
    RerotateSpec spec;
    spec.header.key = NewKey();
    spec.cache_id = cache_.id();
    spec.sequence = Sequence();
    spec.first_row = first_row;
    spec.rows = rows;
    spec.new_positions.first = to;
    spec.act.kind = ActKind::kInPlace;
    return spec;
  }
  CallResult Do(RerotateSpec spec) { return Start(world_, session_, std::move(spec)).Get(); }
  RerotateAnswer Answer(RerotateSpec spec) {
    const CallResult result = Do(std::move(spec));
    EXPECT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    return result.status.ok() ? std::get<RerotateAnswer>(result.answer->body) : RerotateAnswer();
  }
  void ExpectRefused(RerotateSpec spec, const char* reason, const char* field) {
    const std::vector<std::byte> before = cache_.lent().Copy();
    const CallResult result = Do(std::move(spec));
    EXPECT_EQ(ReasonOf(result.status), reason) << result.status.ToString();
    EXPECT_EQ(FieldOf(result.status), field);
    EXPECT_TRUE(cache_.lent().Copy() == before);
  }

  // A key of `memory` in `table`, turned by `distance`.
  std::vector<float> Turned(const std::vector<std::byte>& memory, uint32_t layer, uint32_t head,
                            const std::vector<int32_t>& table, uint64_t row,
                            double distance) const {
    const std::vector<std::byte> bytes = cache_.Row(memory, layer, head, table, row);
    std::vector<float> key(bytes.size() / sizeof(float));
    std::memcpy(key.data(), bytes.data(), key.size() * sizeof(float));
    if (kShape.rope_of[layer] == 0) return key;
    const double speeds[] = {1, 0.01};
    for (size_t j = 0; j < 2; ++j) {
      const double a = key[1 + j], b = key[3 + j], angle = distance * speeds[j];
      key[1 + j] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      key[3 + j] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
    return key;
  }
  // Row `row` of `table` now is `want`: K near, everything behind it (V, companion) equal.
  void ExpectRow(uint32_t layer, uint32_t head, const std::vector<int32_t>& table, uint64_t row,
                 const std::vector<float>& want) {
    const std::vector<std::byte> bytes = cache_.Row(cache_.lent().Copy(), layer, head, table, row);
    ASSERT_EQ(bytes.size(), want.size() * sizeof(float));
    std::vector<float> got(want.size());
    std::memcpy(got.data(), bytes.data(), bytes.size());
    for (size_t e = 0; e < want.size(); ++e) {
      const bool turns = e >= 1 && e < 5 && kShape.rope_of[layer] != 0;
      EXPECT_NEAR(got[e], want[e], turns ? 1e-5 : 0)
          << "layer " << layer << " head " << head << " row " << row << " number " << e;
    }
  }
  void ForEachHead(const std::function<void(uint32_t, uint32_t)>& check) const {
    for (uint32_t l = 0; l < kShape.heads.size(); ++l) {
      for (uint32_t h = 0; h < kShape.heads[l]; ++h) check(l, h);
    }
  }

  EngineWorld world_{{}, nullptr, MakeCpuBackend(2)};
  std::shared_ptr<Session> session_ = world_.Attach();
  WorkerCache cache_{session_, kShape};
};

TEST_F(Rerotation, InPlaceTurnsTheNamedRowsAndNoOtherByte) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  const LedgerView ledger(*session_->ledger());
  RerotateSpec spec = Spec(3, 5, 101);  // row 3 stood at 23
  spec.act.ledger_slot = 2;
  const RerotateAnswer answer = Answer(spec);
  EXPECT_EQ(answer.kv_revision, 1u);
  EXPECT_EQ(answer.rows_rotated, 5u);
  const std::vector<int32_t> table = {5, 2, 9};
  ForEachHead([&](uint32_t l, uint32_t h) {
    for (uint64_t row = 0; row < 10; ++row) {
      const double distance = row >= 3 && row < 8 ? 78 : 0;
      ExpectRow(l, h, table, row, Turned(before, l, h, table, row, distance));
    }
  });
  EXPECT_EQ(ledger.slot(2).op, static_cast<uint32_t>(wire::LedgerOp::kRerotate));
  EXPECT_EQ(ledger.States(2), (std::vector<LedgerUnit>(3, LedgerUnit::kDone)));
  EXPECT_EQ(ledger.Counts(2), (std::vector<uint32_t>(3, 10)));
  // Undone, but for rounding; the whole memory is compared.
  spec = Spec(3, 5, 23);
  spec.sequence.kv_revision = 1;
  spec.sequence.positions->first.reset();
  spec.sequence.positions->list = {20, 21, 22, 101, 102, 103, 104, 105, 28, 29};
  EXPECT_EQ(Answer(spec).kv_revision, 2u);
  const std::vector<std::byte> after = cache_.lent().Copy();
  for (size_t i = 0; i < before.size(); i += sizeof(float)) {
    float was, is;
    std::memcpy(&was, before.data() + i, sizeof was);
    std::memcpy(&is, after.data() + i, sizeof is);
    ASSERT_NEAR(is, was, 1e-5) << "byte " << i;
  }
}

TEST_F(Rerotation, RowsThatStayWriteNothing) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  RerotateSpec spec = Spec(0, 10, 20);
  spec.sequence.sharing = Sharing::kUnknown;
  const RerotateAnswer same = Answer(spec);
  EXPECT_EQ(same.rows_rotated, 0u);
  EXPECT_EQ(same.kv_revision, 0u);
  spec = Spec(0, 10, 500);
  spec.layers = {2};  // no rotary part
  EXPECT_EQ(Answer(spec).rows_rotated, 0u);
  spec = Spec(4, 0, 0);
  EXPECT_EQ(Answer(spec).rows_rotated, 0u);
  EXPECT_TRUE(cache_.lent().Copy() == before);
}

TEST_F(Rerotation, ACopyLeavesTheSourceAlone) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  RerotateSpec spec = Spec(2, 6, 0);
  spec.act.kind = ActKind::kCopy;
  spec.act.destination_cache_id = cache_.id();
  spec.sequence.sharing = Sharing::kUnknown;  // copies may read shared blocks
  spec.sequence.destination = {11, 3};
  const RerotateAnswer answer = Answer(spec);
  EXPECT_EQ(answer.rows_rotated, 6u);
  EXPECT_EQ(answer.kv_revision, 1u);
  ForEachHead([&](uint32_t l, uint32_t h) {
    for (uint64_t j = 0; j < 6; ++j) {
      ExpectRow(l, h, {11, 3}, j, Turned(before, l, h, {5, 2, 9}, 2 + j, -22));
    }
    for (uint64_t row = 0; row < 10; ++row) {
      ExpectRow(l, h, {5, 2, 9}, row, Turned(before, l, h, {5, 2, 9}, row, 0));
    }
  });
}

TEST_F(Rerotation, Refusals) {
  RerotateSpec spec = Spec(0, 10, 0);
  spec.sequence.sharing = Sharing::kPrefix;
  spec.sequence.shared_blocks = 1;
  ExpectRefused(spec, "block_shared", "sequence.table");
  spec.first_row = 4;  // the second block on: none of them is shared
  spec.rows = 6;
  EXPECT_EQ(ReasonOf(Do(spec).status), "ok");
  spec = Spec(0, 10, 0);
  ExpectRefused(spec, "sequence_stale", "sequence.kv_revision");
  spec.sequence.sequence_id = 8;
  spec.cache_id = 1;
  ExpectRefused(spec, "memory_unknown", "cache_id");
  spec.cache_id = cache_.id();
  spec.sequence.table = {5, 2};
  ExpectRefused(spec, "table_too_short", "sequence.table");
  spec.sequence.table = {5, 2, 99};
  ExpectRefused(spec, "block_out_of_range", "sequence.table");
  spec.sequence.table = {5, 2, 9};
  spec.layers = {3};
  ExpectRefused(spec, "index_out_of_range", "layers_le");
  spec.layers.clear();
  spec.act.ledger_slot = 99;
  ExpectRefused(spec, "field_invalid", "act.in_place.ledger_slot");
  spec.act.ledger_slot = 0;
  spec.new_positions = {};
  spec.new_positions.list.assign(30, 1);
  ExpectRefused(spec, "field_invalid", "new_positions");
  spec.new_positions.list.assign(10, 1);
  spec.sequence.positions->first.reset();
  spec.sequence.positions->list.assign(30, 1);
  ExpectRefused(spec, "field_invalid", "sequence.positions");
  spec = Spec(0, 10, 0);
  spec.sequence.sequence_id = 8;
  spec.act.kind = ActKind::kCopy;
  spec.act.destination_cache_id = cache_.id();
  spec.sequence.destination = {11, 3};
  ExpectRefused(spec, "destination_too_small", "sequence.destination");
  spec.sequence.destination = {11, 3, 9};
  ExpectRefused(spec, "destination_overlap", "sequence.destination");
}

// Kind: layers that cannot shift. Without a rotary part there is nothing to turn, and nothing is
// written; an ALiBi layer's rows may be overwritten where they stand, but not moved.
// https://github.com/ggml-org/llama.cpp/pull/10401 https://github.com/ggml-org/llama.cpp/pull/13194
TEST_F(Rerotation, LayersWithoutARotaryPartKeepTheirBytes) {
  CacheSpec alibi = cache_.spec();
  for (LayerSpec& layer : alibi.layers) {
    layer.kind = LayerKind::kAlibi;
    layer.rope_index = 0;
  }
  RerotateSpec spec = Spec(0, 10, 0);
  spec.cache_id = RegisterCache(session_, alibi);
  const std::vector<std::byte> before = cache_.lent().Copy();
  EXPECT_EQ(Answer(spec).rows_rotated, 0u);
  EXPECT_TRUE(cache_.lent().Copy() == before);
  spec.header.key = NewKey();
  spec.act.kind = ActKind::kCopy;
  spec.act.destination_cache_id = spec.cache_id;
  spec.sequence.destination = {11, 3, 4};
  ExpectRefused(spec, "layer_not_movable", "act.copy_to.cache_id");
}

TEST_F(Rerotation, SlidingLayersKeepTheirKeys) {
  CacheSpec sliding = cache_.spec();
  sliding.layers[1].kind = LayerKind::kSliding;
  sliding.layers[1].sliding_window = 99;
  RerotateSpec spec = Spec(0, 10, 0);
  spec.cache_id = RegisterCache(session_, sliding);
  ExpectRefused(spec, "layer_not_movable", "layers_le");
  spec.layers = {0};
  EXPECT_EQ(Answer(spec).rows_rotated, 10u);
}

TEST_F(Rerotation, MemoryLentForReadingIsNotWritten) {
  CacheShape shape = kShape;
  shape.writable = false;
  WorkerCache lent(session_, shape);
  RerotateSpec spec = Spec(0, 10, 0);
  spec.cache_id = lent.id();
  EXPECT_EQ(ReasonOf(Do(spec).status), "region_read_only");
}

TEST_F(Rerotation, PositionsThatDifferByHeadAreNotKnown) {
  CompressSpec evict = RandomSpec(cache_, {Sequence()}, 6);
  ActInPlace(evict);
  const CallResult evicted = RunCall(world_, session_, evict);
  ASSERT_EQ(ReasonOf(evicted.status), "ok");
  RerotateSpec spec = Spec(0, 6, 0);
  spec.sequence.physical_len = 6;
  spec.sequence.total_dropped = 4;
  spec.sequence.kv_revision = 1;
  ExpectRefused(spec, "positions_unknown", "sequence.positions");
  evict = RandomSpec(cache_, {spec.sequence}, 3);
  ActInPlace(evict);
  evict.act.renumber = AngleMode::kExact;
  const CallResult again = RunCall(world_, session_, evict);
  EXPECT_EQ(ReasonOf(again.status), "positions_unknown");
  EXPECT_EQ(FieldOf(again.status), "sequences[0].positions");
  // A new start of the rows ends it.
  spec.sequence.generation = 1;
  EXPECT_EQ(ReasonOf(Do(spec).status), "ok");
}

// Kind: logical and physical length; the next position follows the rows only when they are
// renumbered. https://github.com/NVIDIA/kvpress/issues/158
// https://github.com/NVIDIA/TensorRT-LLM/pull/15697
TEST_F(Rerotation, RenumberingPutsEveryKeptRowAtItsNumber) {
  for (const bool copy : {false, true}) {
    SCOPED_TRACE(copy ? "copy" : "in place");
    FillWithNumbers(cache_);
    const std::vector<std::byte> before = cache_.lent().Copy();
    SequenceSpec sequence = Sequence(copy ? 21 : 20);
    sequence.destination = {11, 3};
    CompressSpec spec = RandomSpec(cache_, {sequence}, 6);
    spec.act.renumber = AngleMode::kExact;
    if (copy) {
      ActCopy(spec, cache_.id());
    } else {
      ActInPlace(spec);
    }
    const CallResult result = RunCall(world_, session_, spec);
    ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    const SequenceOutcome& outcome = CompressOf(result).sequences[0];
    EXPECT_EQ(outcome.kept, 6u);
    EXPECT_EQ(outcome.next_position, 6u);
    const std::vector<int32_t> table = copy ? sequence.destination : sequence.table;
    ForEachHead([&](uint32_t l, uint32_t h) {
      const std::vector<int32_t>& kept = outcome.triage.ListOf(l, h);
      for (size_t j = 0; j < kept.size(); ++j) {
        const double distance = static_cast<double>(j) - 20 - kept[j];
        ExpectRow(l, h, table, j,
                  Turned(before, l, h, sequence.table, static_cast<uint64_t>(kept[j]), distance));
      }
    });
  }
}

// All heads agree again after it, so the next one may renumber too.
TEST_F(Rerotation, RenumberAtEveryEviction) {
  SequenceSpec sequence = Sequence();
  for (uint32_t kept = 9; kept > 2; kept -= 3) {
    CompressSpec spec = RandomSpec(cache_, {sequence}, kept, kept);
    ActInPlace(spec);
    spec.act.renumber = AngleMode::kFp32Table;
    const CallResult result = RunCall(world_, session_, spec);
    ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    sequence.physical_len = kept;
    sequence.total_dropped = 10 - kept;
    ++sequence.kv_revision;
    sequence.positions->first = 0;
  }
}

// "OK, noop" keeps everything, and a re-rotation that was asked for still runs.
TEST_F(Rerotation, KeepingAllRowsStillRenumbers) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  CompressSpec spec = RecencySpec(cache_, {Sequence()}, 10);
  ActInPlace(spec);
  spec.act.renumber = AngleMode::kExact;
  CallResult result = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(result.status), "ok");
  EXPECT_FALSE(CompressOf(result).sequences[0].triage.noop);
  EXPECT_EQ(CompressOf(result).sequences[0].kv_revision, 1u);
  EXPECT_EQ(CompressOf(result).sequences[0].rewritten_bitmap, (std::vector<uint8_t>{0b111}));
  ForEachHead([&](uint32_t l, uint32_t h) {
    for (uint64_t row = 0; row < 10; ++row) {
      ExpectRow(l, h, {5, 2, 9}, row, Turned(before, l, h, {5, 2, 9}, row, -20));
    }
  });
  spec.header.key = NewKey();
  spec.sequences[0].kv_revision = 1;
  spec.sequences[0].positions->first = 0;
  spec.sequences[0].sharing = Sharing::kUnknown;
  result = RunCall(world_, session_, spec);
  EXPECT_TRUE(CompressOf(result).sequences[0].triage.noop);
  spec.sequences[0].positions->first = 1;
  spec.header.key = NewKey();
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "block_shared");
}

TEST_F(Rerotation, ListsOfDifferentLengthCannotBeRenumbered) {
  const std::vector<std::byte> before = cache_.lent().Copy();
  CompressSpec spec = RandomSpec(cache_, {Sequence()}, 4);
  spec.policy.budget.adaptive_alpha = 0.0;
  ActInPlace(spec);
  spec.act.renumber = AngleMode::kExact;
  const CallResult result = RunCall(world_, session_, spec);
  EXPECT_EQ(ReasonOf(result.status), "lengths_unequal");
  EXPECT_EQ(FieldOf(result.status), "act.renumber");
  EXPECT_TRUE(cache_.lent().Copy() == before);
}

TEST(RerotationFailure, LeavesTheUnitsMoving) {
  EngineWorld world;
  const std::shared_ptr<Session> session = world.Attach();
  WorkerCache cache(session, kShape);
  const LedgerView ledger(*session->ledger());
  world.hooks().fail_writes = true;
  RerotateSpec spec;
  spec.header.key = NewKey();
  spec.cache_id = cache.id();
  spec.sequence = cache.Sequence(3, 10, {5, 2, 9});
  spec.sequence.positions.emplace().first = 4;
  spec.rows = 10;
  spec.new_positions.first = 0;
  spec.act.kind = ActKind::kInPlace;
  const CallResult result = Start(world, session, spec).Get();
  EXPECT_EQ(ReasonOf(result.status), "move_failed");
  EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(ledger.States(0), (std::vector<LedgerUnit>(3, LedgerUnit::kMoving)));
}

}  // namespace
}  // namespace kvtriage
