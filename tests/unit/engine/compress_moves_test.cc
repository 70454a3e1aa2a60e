// Rows after a call against a brute-force gather of the memory before it: every byte of the lent
// memory counts, also those that must not change.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/splitmix64.h"
#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

// Rows, bitmaps and lengths of a whole answer against the memory before and after.
void ExpectGathered(WorkerCache& cache, WorkerCache& target, const CompressSpec& spec,
                    const CallResult& result, const std::vector<std::byte>& before_source,
                    const std::vector<std::byte>& before_target) {
  ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
  const CompressAnswer& answer = CompressOf(result);
  std::vector<std::byte> expected = before_target;
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    const SequenceSpec& sequence = spec.sequences[i];
    if (answer.sequences[i].triage.noop || spec.act.kind == ActKind::kSelectOnly) continue;
    const bool copy = spec.act.kind == ActKind::kCopy;
    cache.Gather(answer, answer.sequences[i], sequence,
                 copy ? sequence.destination : sequence.table, target, before_source, expected);
  }
  EXPECT_EQ(target.lent().Copy() == expected, true) << "memory differs from a gather";
  if (&cache != &target) {
    EXPECT_EQ(cache.lent().Copy() == before_source, true);
  }
}

bool Bit(const std::vector<uint8_t>& bitmap, size_t index) {
  return index / 8 < bitmap.size() && (bitmap[index / 8] >> (index % 8) & 1) != 0;
}

// A table entry whose bytes changed is marked, and no bit stands behind the blocks in use.
void ExpectMarked(const WorkerCache& cache, const SequenceOutcome& outcome,
                  const std::vector<int32_t>& table, const std::vector<std::byte>& before,
                  const std::vector<std::byte>& after) {
  const CacheShape& shape = cache.shape();
  for (size_t entry = 0; entry < table.size(); ++entry) {
    bool changed = false;
    for (uint32_t l = 0; l < shape.heads.size(); ++l) {
      for (uint32_t h = 0; h < shape.heads[l]; ++h) {
        for (uint64_t s = 0; s < shape.block_slots; ++s) {
          const uint64_t slot = entry * shape.block_slots + s;
          changed |= cache.Row(before, l, h, table, slot) != cache.Row(after, l, h, table, slot);
        }
      }
    }
    // Random bytes: a moved row differs from what stood there.
    EXPECT_EQ(Bit(outcome.rewritten_bitmap, entry), changed) << "entry " << entry;
    EXPECT_TRUE(!changed || entry < outcome.blocks_used);
  }
}

std::vector<int32_t> ShuffledBlocks(uint64_t seed, uint32_t blocks) {
  std::vector<int32_t> ids(blocks);
  for (uint32_t i = 0; i < blocks; ++i) ids[i] = static_cast<int32_t>(i);
  for (uint32_t i = blocks - 1; i > 0; --i) std::swap(ids[i], ids[SplitMix64(seed, i) % (i + 1)]);
  return ids;
}

struct Layout {
  const char* name;
  CacheShape shape;
  uint32_t first_slot;
};

const Layout kLayouts[] = {
    {"contiguous", {.blocks = 2, .block_slots = 64}, 0},
    {"paged", {}, 0},
    {"paged, padded", {}, 3},
    {"token slots", {.blocks = 64, .block_slots = 1}, 0},
    {"transposed keys", {.transposed_keys = true}, 1},
    {"companions", {.companion_bytes = 9}, 0},
    {"half floats", {.dk = 8, .dv = 3, .dtype = DType::kBF16, .transposed_keys = true}, 2},
    {"fp8 with scales per row",
     {.dk = 8, .dv = 16, .dtype = DType::kF8E4M3, .transposed_keys = true, .row_scales = true},
     1},
    {"latent rows", {.heads = {1, 1}, .group = 4, .dk = 24, .dv = 16, .v_in_k = true}, 0},
    {"fp8 latent rows with scales",
     {.heads = {1, 1},
      .dk = 24,
      .dv = 16,
      .dtype = DType::kF8E5M2,
      .row_scales = true,
      .v_in_k = true},
     2},
    {"layers that differ", {.heads = {1, 4, 2}, .companion_bytes = 3}, 0},
};

std::unique_ptr<Backend> RealKernels(bool real) { return real ? MakeCpuBackend(2) : nullptr; }

// On plain loops and on the CPU backend.
class MovesOf : public testing::TestWithParam<std::tuple<Layout, bool>> {
 protected:
  static const Layout& layout() { return std::get<0>(GetParam()); }

  EngineWorld world_{{}, nullptr, RealKernels(std::get<1>(GetParam()))};
  std::shared_ptr<Session> session_ = world_.Attach();
};

TEST_P(MovesOf, InPlaceIsAGather) {
  WorkerCache cache(session_, layout().shape);
  const uint32_t half = layout().shape.blocks / 2;
  const auto blocks = ShuffledBlocks(5, layout().shape.blocks);
  const uint32_t room = half * layout().shape.block_slots - layout().first_slot;
  const uint32_t rows = std::min(29u, room);
  auto a = cache.Sequence(1, rows, {blocks.begin(), blocks.begin() + half});
  auto b = cache.Sequence(2, std::min(rows, 17u), {blocks.begin() + half, blocks.end()});
  a.first_slot = b.first_slot = layout().first_slot;
  CompressSpec spec = RandomSpec(cache, {a, b}, 11);
  ActInPlace(spec);
  const auto before = cache.lent().Copy();
  const CallResult result = RunCall(world_, session_, spec);
  ExpectGathered(cache, cache, spec, result, before, before);
  const auto after = cache.lent().Copy();
  for (size_t i = 0; i < 2; ++i) {
    const SequenceOutcome& outcome = CompressOf(result).sequences[i];
    ExpectMarked(cache, outcome, spec.sequences[i].table, before, after);
    EXPECT_EQ(outcome.kept, 11u);
    EXPECT_EQ(outcome.kv_revision, 1u);
    const uint32_t slots = layout().first_slot + 11;
    EXPECT_EQ(outcome.blocks_used,
              (slots + layout().shape.block_slots - 1) / layout().shape.block_slots);
  }
}

TEST_P(MovesOf, CopyLeavesTheSource) {
  WorkerCache cache(session_, layout().shape, 1);
  WorkerCache target(session_, layout().shape, 2);
  const auto blocks = ShuffledBlocks(6, layout().shape.blocks);
  const uint32_t room = layout().shape.blocks * layout().shape.block_slots - layout().first_slot;
  auto sequence = cache.Sequence(1, std::min(40u, room), blocks);
  sequence.first_slot = layout().first_slot;
  sequence.destination = ShuffledBlocks(7, layout().shape.blocks);
  CompressSpec spec = RandomSpec(cache, {sequence}, 13);
  ActCopy(spec, target.id());
  const auto before = cache.lent().Copy();
  const auto before_target = target.lent().Copy();
  const CallResult result = RunCall(world_, session_, spec);
  ExpectGathered(cache, target, spec, result, before, before_target);
  const SequenceOutcome& outcome = CompressOf(result).sequences[0];
  ExpectMarked(target, outcome, sequence.destination, before_target, target.lent().Copy());
}

TEST_P(MovesOf, CopyWithinOneCache) {
  WorkerCache cache(session_, layout().shape);
  const uint32_t half = layout().shape.blocks / 2;
  const auto blocks = ShuffledBlocks(8, layout().shape.blocks);
  const uint32_t room = half * layout().shape.block_slots - layout().first_slot;
  auto sequence = cache.Sequence(1, std::min(30u, room), {blocks.begin(), blocks.begin() + half});
  sequence.first_slot = layout().first_slot;
  sequence.destination = {blocks.begin() + half, blocks.end()};
  CompressSpec spec = RandomSpec(cache, {sequence}, 13);
  ActCopy(spec, cache.id());
  const auto before = cache.lent().Copy();
  ExpectGathered(cache, cache, spec, RunCall(world_, session_, spec), before, before);
}

TEST_P(MovesOf, SelectOnlyWritesNothing) {
  CacheShape shape = layout().shape;
  shape.writable = false;
  WorkerCache cache(session_, shape);
  const uint32_t rows = std::min(20u, shape.blocks * shape.block_slots - layout().first_slot);
  auto sequence = cache.Sequence(1, rows, ShuffledBlocks(9, shape.blocks));
  sequence.first_slot = layout().first_slot;
  sequence.sharing = Sharing::kUnspecified;
  const auto before = cache.lent().Copy();
  const CompressSpec spec = RandomSpec(cache, {sequence}, 5);
  const CallResult result = RunCall(world_, session_, spec);
  ExpectGathered(cache, cache, spec, result, before, before);
  const SequenceOutcome& outcome = CompressOf(result).sequences[0];
  EXPECT_EQ(outcome.kept, 5u);
  EXPECT_EQ(outcome.kv_revision, 0u);
  EXPECT_TRUE(outcome.rewritten_bitmap.empty());
  EXPECT_EQ(outcome.blocks_used,
            (layout().first_slot + rows + shape.block_slots - 1) / shape.block_slots);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MovesOf,
                         testing::Combine(testing::ValuesIn(kLayouts), testing::Bool()),
                         [](const testing::TestParamInfo<std::tuple<Layout, bool>>& info) {
                           std::string name = std::get<0>(info.param).name;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name + (std::get<1>(info.param) ? "Cpu" : "Plain");
                         });

class Moves : public testing::Test {
 protected:
  EngineWorld world_;
  std::shared_ptr<Session> session_ = world_.Attach();
};

TEST_F(Moves, HeadsOfUnequalLengthMoveByTheirOwnLists) {
  WorkerCache cache(session_, {.heads = {3}});
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 50, ShuffledBlocks(3, 16))}, 20);
  spec.policy.budget.adaptive_alpha = 0.1;
  ActInPlace(spec);
  const auto before = cache.lent().Copy();
  const CallResult result = RunCall(world_, session_, spec);
  ExpectGathered(cache, cache, spec, result, before, before);
  size_t total = 0;
  for (const auto& list : CompressOf(result).sequences[0].triage.kept) total += list.size();
  EXPECT_EQ(total, 60u);
}

TEST_F(Moves, LayersAndHeadsOfUnequalBudgetsMoveByTheirOwnLists) {
  WorkerCache cache(session_, {.heads = {2, 1, 3}});
  const auto run = [&](uint64_t id, const Budget& budget, bool copy) {
    CompressSpec spec = RandomSpec(cache, {cache.Sequence(id, 30, {1, 9, 4, 0, 12, 7, 3, 2})}, 1);
    spec.policy.budget = budget;
    spec.sequences[0].destination = {5, 6, 8, 10, 11, 13, 14, 15};
    copy ? ActCopy(spec, cache.id()) : ActInPlace(spec);
    const auto before = cache.lent().Copy();
    const CallResult result = RunCall(world_, session_, spec);
    ExpectGathered(cache, cache, spec, result, before, before);
    std::vector<size_t> counts;
    for (const auto& list : CompressOf(result).sequences[0].triage.kept) {
      counts.push_back(list.size());
    }
    return counts;
  };
  using Counts = std::vector<size_t>;
  uint64_t id = 1;
  for (const bool copy : {false, true}) {
    EXPECT_EQ(run(id++, {.explicit_layers = {5, 30, 11}}, copy), (Counts{5, 5, 30, 11, 11, 11}));
    EXPECT_EQ(run(id++, {.explicit_heads = {1, 9, 30, 4, 5, 22}}, copy),
              (Counts{1, 9, 30, 4, 5, 22}));
    EXPECT_EQ(run(id++, {.kept_tokens = 10, .pyramid_beta = 20}, copy),
              (Counts{19, 19, 10, 1, 1, 1}));
  }
}

TEST_F(Moves, OneSetForAllLayersAndSomeLayersOnly) {
  WorkerCache cache(session_, {.heads = {2, 1, 3}});
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 50, ShuffledBlocks(3, 16))}, 20);
  spec.policy.granularity = Granularity::kPerSequence;
  spec.layers = {0, 2};
  ActInPlace(spec);
  const auto before = cache.lent().Copy();
  const CallResult result = RunCall(world_, session_, spec);
  ExpectGathered(cache, cache, spec, result, before, before);
  EXPECT_EQ(CompressOf(result).layer_indexes, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(CompressOf(result).heads, (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(CompressOf(result).sequences[0].triage.kept.size(), 1u);
}

// A budget between N and 2N was a size error elsewhere; here it keeps all and writes nothing.
// https://github.com/FMInference/H2O/issues/11
TEST_F(Moves, BetweenBudgetAndLengthNothingIsWritten) {
  WorkerCache cache(session_, {});
  for (const uint32_t rows : {0u, 1u, 10u}) {
    for (const uint32_t budget : {10u, 19u, 2048u}) {
      CompressSpec spec =
          RandomSpec(cache, {cache.Sequence(rows + 1, rows, ShuffledBlocks(3, 16))}, budget);
      ActInPlace(spec);
      const auto before = cache.lent().Copy();
      const CallResult result = RunCall(world_, session_, spec);
      ASSERT_EQ(ReasonOf(result.status), "ok");
      const SequenceOutcome& outcome = CompressOf(result).sequences[0];
      EXPECT_TRUE(outcome.triage.noop);
      EXPECT_EQ(outcome.kept, rows);
      EXPECT_EQ(outcome.kv_revision, 0u);
      EXPECT_EQ(outcome.blocks_used, (rows + 3) / 4);
      EXPECT_TRUE(outcome.rewritten_bitmap.empty());
      EXPECT_EQ(cache.lent().Copy() == before, true);
    }
  }
  EXPECT_EQ(world_.hooks().moves, 0);
}

// A count that rounds to zero becomes one. https://github.com/NVIDIA/kvpress/pull/264
TEST_F(Moves, CountThatRoundsToZeroKeepsOneRow) {
  WorkerCache cache(session_, {});
  for (const uint32_t rows : {2u, 3u}) {
    for (const double ratio : {0.4, 0.05, 0.001}) {
      CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, rows, {4})}, 1);
      spec.policy.budget = {};
      spec.policy.budget.kept_ratio = ratio;
      EXPECT_EQ(CompressOf(RunCall(world_, session_, spec)).sequences[0].kept, 1u);
    }
  }
}

// Padding ids behind the needed entries are nobody's business.
// https://github.com/vllm-project/vllm/pull/43869
TEST_F(Moves, PaddingBehindTheTableIsIgnored) {
  WorkerCache cache(session_, {.block_slots = 16});
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 20, {5, 2, -1, 99})}, 6);
  ActInPlace(spec);
  const auto before = cache.lent().Copy();
  ExpectGathered(cache, cache, spec, RunCall(world_, session_, spec), before, before);
}

// A shared prefix is fine while its rows stay; nothing of it is ever written.
// https://github.com/NVIDIA/TensorRT-LLM/pull/15106
TEST_F(Moves, SharedBlocksAreNeverRewritten) {
  WorkerCache cache(session_, {.block_slots = 16});
  SequenceSpec a = cache.Sequence(1, 48, {7, 3, 9});
  a.sharing = Sharing::kPrefix;
  a.shared_blocks = 2;
  SequenceSpec b = cache.Sequence(2, 48, {7, 3, 4});
  b.sharing = Sharing::kPrefix;
  b.shared_blocks = 2;
  const auto before = cache.lent().Copy();

  CompressSpec in_place = RecencySpec(cache, {a}, 20);
  ActInPlace(in_place);
  CallResult result = RunCall(world_, session_, in_place);
  ASSERT_EQ(ReasonOf(result.status), "block_shared");
  EXPECT_EQ(GetErrorInfo(result.status)->index, 0u);
  EXPECT_EQ(GetErrorInfo(result.status)->more_indices, (std::vector<uint64_t>{1}));
  in_place.header.key = NewKey();
  in_place.sequences = {a, b};
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, in_place).status), "block_shared");
  in_place.header.key = NewKey();
  in_place.sequences = {a};
  in_place.sequences[0].sharing = Sharing::kUnknown;
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, in_place).status), "block_shared");
  EXPECT_EQ(cache.lent().Copy() == before, true);

  CompressSpec copy = RecencySpec(cache, {a}, 20);
  copy.sequences[0].destination = {1, 2};
  ActCopy(copy, cache.id());
  ExpectGathered(cache, cache, copy, RunCall(world_, session_, copy), before, before);

  SequenceSpec kept = a;  // the worker goes on with the source
  kept.kv_revision = 1;
  kept.protect.lists.emplace_back();
  for (int32_t p = 0; p < 32; ++p) kept.protect.lists[0].push_back(p);
  CompressSpec protect = RecencySpec(cache, {kept}, 40);
  ActInPlace(protect);
  const auto now = cache.lent().Copy();
  result = RunCall(world_, session_, protect);
  ExpectGathered(cache, cache, protect, result, now, now);
  EXPECT_EQ(CompressOf(result).sequences[0].rewritten_bitmap, (std::vector<uint8_t>{0b100}));
}

// Head sizes that differ by layer are each read by their own description.
// https://github.com/LMCache/LMCache/issues/4358
TEST_F(Moves, LayersOfOtherHeadCountsInOneCall) {
  WorkerCache cache(session_, {.heads = {16, 8, 4}, .dk = 8, .dv = 8});
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 60, ShuffledBlocks(2, 16))}, 33);
  ActInPlace(spec);
  const auto before = cache.lent().Copy();
  ExpectGathered(cache, cache, spec, RunCall(world_, session_, spec), before, before);
}

}  // namespace
}  // namespace kvtriage
