// Every refusal of the planner and of the checks after the selection: its reason, its field, and
// not one byte of the lent memory changed, no pin left.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <ostream>
#include <utility>

#include "tests/unit/engine/worker_cache.h"

namespace kvtriage {
namespace {

// What a case may change: a good call that writes in place, with column sums, and what it needs.
struct Scene {
  EngineWorld& world;
  std::shared_ptr<Session> session;
  WorkerCache& cache;
  WorkerCache& other;      // same geometry, other memory
  WorkerCache& read_only;  // same geometry, lent for reading
  CompressSpec& spec;
};

TensorSpec SumsAt(const WorkerCache& cache, uint64_t region_id) {
  TensorSpec sums;
  sums.region_id = region_id;
  sums.offset = cache.tail_offset();
  sums.layers = 2;
  sums.rows = 2;
  sums.heads = 4;
  sums.elems = 40;
  sums.elem_stride = 4;
  sums.head_stride = 160;
  sums.row_stride = 640;
  sums.layer_stride = 1280;
  return sums;
}

TensorSpec QueriesAt(const WorkerCache& cache, uint64_t region_id, uint32_t elems) {
  TensorSpec q = SumsAt(cache, region_id);
  q.rows = 8;
  q.elems = elems;
  q.head_stride = uint64_t{elems} * 4;
  q.row_stride = 4 * q.head_stride;
  q.layer_stride = 8 * q.row_stride;
  return q;
}

struct Case {
  const char* name;
  std::function<void(Scene&)> change;
  const char* reason;
  const char* field;
  std::optional<uint64_t> index, got, limit;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

void UseQueries(Scene& s) {
  s.spec.inputs = {};
  s.spec.inputs.source = AttentionSource::kQuery;
  s.spec.inputs.softmax_scale = 1;
  s.spec.inputs.q = QueriesAt(s.cache, s.cache.lent().region_id(), 4);
  s.spec.policy.window = {false, 4};
  for (SequenceSpec& sequence : s.spec.sequences) sequence.rows_count = 4;
}

void UseCopy(Scene& s, uint64_t cache_id) {
  ActCopy(s.spec, cache_id);
  s.spec.sequences[0].destination = {8, 9, 10};
  s.spec.sequences[1].destination = {11, 12, 13};
}

// The scene's cache described once more, with ALiBi layers.
void UseAlibi(Scene& s, bool position_aware) {
  CacheSpec alibi = s.cache.spec();
  for (LayerSpec& layer : alibi.layers) {
    layer.kind = LayerKind::kAlibi;
    layer.position_aware = position_aware;
  }
  s.spec.cache_id = RegisterCache(s.session, alibi);
}

// The scene's cache described once more, with sliding layers of these widths; 0: a plain one.
void UseSliding(Scene& s, uint32_t first, uint32_t second) {
  CacheSpec sliding = s.cache.spec();
  for (size_t l = 0; l < 2; ++l) {
    const uint32_t window = l == 0 ? first : second;
    sliding.layers[l].kind = window > 0 ? LayerKind::kSliding : LayerKind::kFull;
    sliding.layers[l].sliding_window = window;
  }
  s.spec.cache_id = RegisterCache(s.session, sliding);
}

// The scene's cache described once more, its keys turned by a rope of two channels.
void UseRope(Scene& s, std::array<uint32_t, 3> sections) {
  CacheSpec roped = s.cache.spec();
  roped.ropes = {{.rotary_dim = 2, .speeds = {1.0}, .sections = sections}};
  for (LayerSpec& layer : roped.layers) layer.rope_index = 1;
  s.spec.cache_id = RegisterCache(s.session, roped);
  s.spec.inputs.before_rope = true;
}

// One number per layer and query head.
TensorSpec PerHead(const Scene& s) {
  TensorSpec numbers = SumsAt(s.cache, s.cache.lent().region_id());
  numbers.rows = numbers.elems = 1;
  return numbers;
}

const Case kCases[] = {
    // caches
    {"unknown cache", [](Scene& s) { s.spec.cache_id ^= 1; }, "memory_unknown", "cache_id"},
    {"layer not in the cache",
     [](Scene& s) {
       s.spec.layers = {0, 2};
     },
     "index_out_of_range", "layers_le", 1, 2, 2},
    {"in place in memory lent for reading", [](Scene& s) { s.spec.cache_id = s.read_only.id(); },
     "region_read_only", "cache_id"},
    // tables
    {"table too short",
     [](Scene& s) { s.spec.sequences[1].table.pop_back(); },
     "table_too_short",
     "sequences[1].table",
     {},
     3,
     4},
    {"table too short by padding",
     [](Scene& s) { s.spec.sequences[1].first_slot = 4; },
     "table_too_short",
     "sequences[1].table",
     {},
     4,
     5},
    {"too many rows",
     [](Scene& s) {
       s.spec.sequences[0].physical_len = s.spec.sequences[0].logical_len = (1u << 24) + 1;
     },
     "too_many",
     "sequences[0].physical_len",
     {},
     (1u << 24) + 1,
     1u << 24},
    {"block id of -1", [](Scene& s) { s.spec.sequences[0].table[2] = -1; }, "block_out_of_range",
     "sequences[0].table", 2, 0xFFFFFFFFu, 16},
    {"block id behind the cache", [](Scene& s) { s.spec.sequences[1].table[1] = 16; },
     "block_out_of_range", "sequences[1].table", 1, 16, 16},
    {"largest block id", [](Scene& s) { s.spec.sequences[0].table[0] = INT32_MAX; },
     "block_out_of_range", "sequences[0].table", 0, INT32_MAX, 16},
    {"block twice in one table", [](Scene& s) { s.spec.sequences[0].table[3] = 0; },
     "block_duplicate", "sequences[0].table", 3, 0},
    {"block twice in one table, though shared",
     [](Scene& s) {
       s.spec.sequences[0].table[3] = 0;
       s.spec.sequences[0].sharing = Sharing::kUnknown;
     },
     "block_duplicate", "sequences[0].table", 3, 0},
    {"block in two private tables", [](Scene& s) { s.spec.sequences[1].table[0] = 2; },
     "block_duplicate", "sequences[1].table", 0, 2},
    {"block in two tables, shared in one only",
     [](Scene& s) {
       s.spec.sequences[1].table[0] = 2;
       s.spec.sequences[0].sharing = Sharing::kUnknown;
     },
     "block_duplicate", "sequences[1].table", 0, 2},
    // explicit rows
    {"explicit lists that do not fit the heads",
     [](Scene& s) {
       s.spec.sequences[0].protect = {Granularity::kPerHead, {{0}, {1}, {2}}};
     },
     "field_invalid",
     "sequences[0].protect.counts_le",
     {},
     3,
     4},
    {"explicit lists that do not fit the layers",
     [](Scene& s) {
       s.spec.sequences[0].protect = {Granularity::kPerLayer, {{0}}};
     },
     "field_invalid",
     "sequences[0].protect.counts_le",
     {},
     1,
     2},
    {"explicit row outside the sequence",
     [](Scene& s) {
       s.spec.sequences[1].protect = {Granularity::kPerLayer, {{0}, {1, 13}}};
     },
     "index_out_of_range", "sequences[1].protect.indices_le", 2, 13, 13},
    {"more explicit rows than the budget",
     [](Scene& s) {
       s.spec.sequences[1].protect = {Granularity::kPerSequence, {{0, 1, 2, 3, 4, 5, 6, 7, 8}}};
     },
     "budget_too_small",
     "sequences[1].protect",
     {},
     9,
     8},
    // budgets
    {"counts for another number of layers",
     [](Scene& s) {
       s.spec.policy.budget = {.explicit_layers = {1, 2, 3}};
     },
     "field_invalid",
     "policy.parts.budget.explicit_layers.counts_le",
     {},
     3,
     2},
    {"counts for another number of heads",
     [](Scene& s) {
       s.spec.policy.budget = {.explicit_heads = {1, 2}};
     },
     "field_invalid",
     "policy.parts.budget.explicit_heads.counts_le",
     {},
     2,
     4},
    {"unequal heads where they must be equal",
     [](Scene& s) {
       s.spec.policy.budget = {.explicit_heads = {5, 5, 6, 7}};
       s.spec.lengths = LengthRule::kPerLayer;
     },
     "lengths_unequal", "output.lengths", 1},
    {"more explicit rows than their layer's count",
     [](Scene& s) {
       s.spec.policy.budget = {.explicit_layers = {9, 2}};
       s.spec.sequences[1].protect = {Granularity::kPerSequence, {{0, 1, 2}}};
     },
     "budget_too_small",
     "sequences[1].protect",
     {},
     3,
     2},
    {"pyramid over protected sets of unequal size",
     [](Scene& s) {
       s.spec.policy.budget.pyramid_beta = 20;
       s.spec.policy.protect.sinks = 2;
       s.spec.sequences[1].protect = {Granularity::kPerLayer, {{0}, {5}}};
     },
     "policy_invalid",
     "sequences[1].protect",
     {},
     3,
     2},
    {"output projection for other heads",
     [](Scene& s) {
       UseQueries(s);
       s.spec.policy.score.scorer = Scorer::kCritical;
       s.spec.inputs.output_projection = QueriesAt(s.cache, s.cache.lent().region_id(), 6);
       s.spec.inputs.output_projection->heads = 3;
     },
     "geometry_invalid", "inputs.output_projection.heads", 0, 3, 4},
    // https://github.com/NVIDIA/kvpress/issues/213
    {"output projection for other values",
     [](Scene& s) {
       UseQueries(s);
       s.spec.policy.score.scorer = Scorer::kCritical;
       s.spec.inputs.output_projection = QueriesAt(s.cache, s.cache.lent().region_id(), 5);
     },
     "geometry_invalid", "inputs.output_projection.elems", 0, 5, 6},
    {"expected attention without rotary data",
     [](Scene& s) {
       s.spec.policy.score.scorer = Scorer::kExpectedAttention;
       s.spec.inputs.query_mean = s.spec.inputs.query_covariance =
           QueriesAt(s.cache, s.cache.lent().region_id(), 4);
     },
     "stage_mismatch", "cache_id", 0},
    {"output projection outside its region",
     [](Scene& s) {
       UseQueries(s);
       s.spec.policy.score.scorer = Scorer::kCritical;
       s.spec.inputs.output_projection = QueriesAt(s.cache, s.cache.lent().region_id(), 6);
       s.spec.inputs.output_projection->offset = s.cache.lent().bytes() - 8;
     },
     "range_out_of_region", "inputs.output_projection"},
    // inputs
    {"scorer without queries", [](Scene& s) { s.spec.inputs = {}; }, "policy_invalid", "inputs"},
    {"column sums for a scorer that needs rows",
     [](Scene& s) { s.spec.policy.score.scorer = Scorer::kObcKey; }, "policy_invalid",
     "inputs.column_sums"},
    {"one row of sums for sets per head",
     [](Scene& s) {
       s.spec.inputs.sums_axis = HeadAxis::kSummed;
       s.spec.inputs.sums->heads = 1;
     },
     "policy_invalid", "inputs.column_sums.heads"},
    {"one row of sums for VATP",
     [](Scene& s) {
       s.spec.inputs.sums_axis = HeadAxis::kSummed;
       s.spec.inputs.sums->heads = 1;
       s.spec.policy.score.scorer = Scorer::kVatp;
       s.spec.policy.granularity = Granularity::kPerLayer;
     },
     "policy_invalid", "inputs.column_sums.heads"},
    {"no logits for the key scorer",
     [](Scene& s) {
       s.spec.inputs.source = AttentionSource::kReady;
       s.spec.inputs.a = s.spec.inputs.sums;
       s.spec.policy.score.scorer = Scorer::kObcKey;
     },
     "field_missing", "inputs.attention.z"},
    {"no outputs for exact deletion",
     [](Scene& s) {
       s.spec.inputs.source = AttentionSource::kReady;
       s.spec.inputs.a = s.spec.inputs.sums;
       s.spec.policy.score.scorer = Scorer::kDrop;
     },
     "field_missing", "inputs.attention.o"},
    {"unknown region of an input", [](Scene& s) { s.spec.inputs.sums->region_id ^= 1; },
     "memory_unknown", "inputs.column_sums.sums"},
    {"input ends outside its region",
     [](Scene& s) { s.spec.inputs.sums->offset = s.cache.lent().bytes() - 2556; },
     "range_out_of_region", "inputs.column_sums.sums"},
    {"input whose strides leave the region",
     [](Scene& s) { s.spec.inputs.sums->layer_stride = 1u << 20; }, "range_out_of_region",
     "inputs.column_sums.sums"},
    {"input whose strides wrap", [](Scene& s) { s.spec.inputs.sums->layer_stride = ~uint64_t{0}; },
     "geometry_overflow", "inputs.column_sums.sums"},
    {"input with too few layers",
     [](Scene& s) { s.spec.inputs.sums->layers = 1; },
     "geometry_invalid",
     "inputs.column_sums.sums.layers",
     {},
     1,
     2},
    {"input with too few heads", [](Scene& s) { s.spec.inputs.sums->heads = 2; },
     "geometry_invalid", "inputs.column_sums.sums.heads", 0, 2, 4},
    {"input with too few rows",
     [](Scene& s) { s.spec.inputs.sums->rows = 1; },
     "field_invalid",
     "inputs.column_sums.sums.rows",
     {},
     1,
     2},
    {"input rows that wrap 32 bits",
     [](Scene& s) { s.spec.sequences[1].rows_begin = UINT32_MAX; },
     "field_invalid",
     "inputs.column_sums.sums.rows",
     {},
     2,
     uint64_t{1} << 32},
    {"input without an element per cached row",
     [](Scene& s) { s.spec.inputs.sums->elems = 15; },
     "geometry_invalid",
     "inputs.column_sums.sums.elems",
     {},
     15,
     16},
    {"queries of another head size",
     [](Scene& s) {
       UseQueries(s);
       s.spec.inputs.q->elems = 5;
     },
     "geometry_invalid", "inputs.query.q.elems", 0, 5, 4},
    {"queries missing", [](Scene& s) { UseQueries(s), s.spec.inputs.q.reset(); }, "field_missing",
     "inputs.query.q"},
    {"ALiBi without slopes", [](Scene& s) { UseQueries(s), UseAlibi(s, true); }, "field_missing",
     "inputs.alibi_slopes", 0},
    {"slopes without an ALiBi layer",
     [](Scene& s) { UseQueries(s), s.spec.inputs.alibi_slopes = PerHead(s); }, "field_invalid",
     "inputs.alibi_slopes"},
    {"slopes of too few heads",
     [](Scene& s) {
       UseQueries(s), UseAlibi(s, true);
       s.spec.inputs.alibi_slopes = PerHead(s);
       s.spec.inputs.alibi_slopes->heads = 2;
     },
     "geometry_invalid", "inputs.alibi_slopes.heads", 0, 2, 4},
    {"sinks of one layer",
     [](Scene& s) {
       UseQueries(s);
       s.spec.inputs.sink_logits = PerHead(s);
       s.spec.inputs.sink_logits->layers = 1;
     },
     "geometry_invalid", "inputs.sink_logits.layers", 0, 1, 2},
    {"sinks behind their region",
     [](Scene& s) {
       UseQueries(s);
       s.spec.inputs.sink_logits = PerHead(s);
       s.spec.inputs.sink_logits->offset = s.cache.lent().bytes() - 4;
     },
     "range_out_of_region", "inputs.sink_logits"},
    // Kind: the query stage mixed up. https://github.com/LMCache/LMCache/pull/1633
    {"queries before RoPE, no rotary data",
     [](Scene& s) { UseQueries(s), s.spec.inputs.before_rope = true; }, "stage_mismatch",
     "inputs.query.stage", 0},
    {"queries before RoPE, no positions",
     [](Scene& s) {
       UseQueries(s), UseRope(s, {});
       s.spec.sequences[0].positions = PositionsSpec{.first = 0};
     },
     "field_missing", "sequences[1].positions"},
    {"queries before RoPE, one plane of three",
     [](Scene& s) {
       UseQueries(s), UseRope(s, {1, 0, 0});
       s.spec.sequences[1].positions = PositionsSpec{.first = 0};
       s.spec.sequences[0].positions = PositionsSpec{.list = std::vector<int32_t>(16)};
     },
     "field_invalid",
     "sequences[0].positions",
     {},
     16,
     48},
    {"queries before RoPE without rows of their own",
     [](Scene& s) {
       UseQueries(s), UseRope(s, {});
       for (SequenceSpec& sequence : s.spec.sequences) {
         sequence.positions = PositionsSpec{.first = 0};
         sequence.rows_count = 4;
       }
       s.spec.sequences[0].physical_len = s.spec.sequences[0].logical_len = 3;
       s.spec.sequences[0].row_limits = {3, 3, 3, 3};
     },
     "field_invalid",
     "sequences[0].rows_count",
     {},
     4,
     3},
    // layers whose rows keep their place
    {"in place, bias by the row's place", [](Scene& s) { UseAlibi(s, false); }, "layer_not_movable",
     "act", 0},
    {"copy of rows with a bias by place",
     [](Scene& s) { UseAlibi(s, false), UseCopy(s, s.other.id()); }, "layer_not_movable", "act", 0},
    {"copy to rows with a bias by place",
     [](Scene& s) {
       const uint64_t from = s.spec.cache_id;
       UseAlibi(s, false);
       UseCopy(s, std::exchange(s.spec.cache_id, from));
     },
     "layer_not_movable", "act.copy_to.cache_id", 0},
    {"in place, sliding layer", [](Scene& s) { UseSliding(s, 0, 9); }, "layer_not_movable", "act",
     1},
    {"copy of a sliding layer", [](Scene& s) { UseSliding(s, 9, 0), UseCopy(s, s.other.id()); },
     "layer_not_movable", "act", 0},
    {"copy to a sliding layer",
     [](Scene& s) {
       const uint64_t from = s.spec.cache_id;
       UseSliding(s, 0, 99);
       UseCopy(s, std::exchange(s.spec.cache_id, from));
     },
     "layer_not_movable", "act.copy_to.cache_id", 1},
    {"a pyramid over a sliding layer",
     [](Scene& s) {
       UseSliding(s, 0, 9), s.spec.act = {};
       s.spec.policy.budget.pyramid_beta = 20;
     },
     "policy_invalid", "policy.parts.budget.pyramid", 1},
    {"one set for layers of two windows",
     [](Scene& s) {
       UseSliding(s, 0, 9), s.spec.act = {};
       s.spec.policy.granularity = Granularity::kPerSequence;
     },
     "policy_invalid", "policy.parts.granularity", 1, 9, 0},
    {"one length, a window below the budget",
     [](Scene& s) {
       UseSliding(s, 9, 7), s.spec.act = {};
       s.spec.lengths = LengthRule::kOne;
     },
     "lengths_unequal", "output.lengths", 1, 7, 8},
    // ledger
    {"no such ledger slot",
     [](Scene& s) { s.spec.act.ledger_slot = 4; },
     "field_invalid",
     "act.in_place.ledger_slot",
     {},
     4,
     4},
    // sharing
    {"write into a shared block", [](Scene& s) { s.spec.sequences[1].sharing = Sharing::kUnknown; },
     "block_shared", "sequences[1].table", 0},
    {"write into a block marked by the bitmap",
     [](Scene& s) {
       s.spec.sequences[0].sharing = Sharing::kBitmap;
       s.spec.sequences[0].shared_bitmap = {0b0010};
     },
     "block_shared", "sequences[0].table", 1},
    // copy
    {"copy to an unknown cache", [](Scene& s) { UseCopy(s, 77); }, "memory_unknown",
     "act.copy_to.cache_id"},
    {"copy into memory lent for reading", [](Scene& s) { UseCopy(s, s.read_only.id()); },
     "region_read_only", "act.copy_to.cache_id"},
    {"copy onto a source block",
     [](Scene& s) {
       UseCopy(s, s.cache.id());
       s.spec.sequences[1].destination[1] = 3;
     },
     "destination_overlap", "sequences[1].destination", 1, 3},
    {"copy onto another destination",
     [](Scene& s) {
       UseCopy(s, s.other.id());
       s.spec.sequences[1].destination[0] = 9;
     },
     "destination_overlap", "sequences[1].destination", 0, 9},
    {"copy twice onto one block",
     [](Scene& s) {
       UseCopy(s, s.other.id());
       s.spec.sequences[0].destination[1] = 8;
     },
     "destination_overlap", "sequences[0].destination", 1, 8},
    {"copy destination too small",
     [](Scene& s) {
       UseCopy(s, s.other.id());
       s.spec.sequences[1].destination.resize(1);
     },
     "destination_too_small",
     "sequences[1].destination",
     {},
     1,
     2},
    {"copy destination behind the cache",
     [](Scene& s) {
       UseCopy(s, s.other.id());
       s.spec.sequences[0].destination[1] = 16;
     },
     "block_out_of_range", "sequences[0].destination", 1, 16, 16},
    {"copy to the same memory lent twice",
     [](Scene& s) {
       CacheSpec again = s.cache.spec();
       const uint64_t region = s.cache.lent().LendAgain(true);
       for (LayerSpec& layer : again.layers) layer.k.region_id = layer.v.region_id = region;
       UseCopy(s, RegisterCache(s.session, again));
     },
     "destination_overlap", "act.copy_to.cache_id"},
    // fences
    {"lengths that do not add up",
     [](Scene& s) { s.spec.sequences[1].total_dropped = 1; },
     "sequence_stale",
     "sequences[1].physical_len",
     {},
     13,
     12},
};

class Refusal : public testing::TestWithParam<Case> {};

TEST_P(Refusal, NamesTheFieldAndWritesNothing) {
  const Case& c = GetParam();
  EngineWorld world;
  const auto session = world.Attach();
  WorkerCache cache(session, {}, 1);
  WorkerCache other(session, {}, 2);
  WorkerCache read_only(session, {.writable = false}, 3);
  CompressSpec spec = RandomSpec(
      cache, {cache.Sequence(1, 16, {0, 1, 2, 3}), cache.Sequence(2, 13, {4, 5, 6, 7})}, 8);
  spec.policy.score.scorer = Scorer::kAttention;
  spec.inputs.source = AttentionSource::kColumnSums;
  spec.inputs.sums = SumsAt(cache, cache.lent().region_id());
  for (uint32_t i = 0; i < 2; ++i) {
    spec.sequences[i].rows_begin = i;
    spec.sequences[i].rows_count = 1;
  }
  ActInPlace(spec);
  Scene scene{world, session, cache, other, read_only, spec};
  c.change(scene);
  const auto before = cache.lent().Copy();
  const auto before_other = other.lent().Copy();
  const auto before_read_only = read_only.lent().Copy();

  const CallResult result = RunCall(world, session, spec);
  ASSERT_EQ(ReasonOf(result.status), c.reason) << result.status.ToString();
  const ErrorInfo info = *GetErrorInfo(result.status);
  EXPECT_EQ(result.status.code(), CodeOf(info.reason));
  EXPECT_EQ(info.field, c.field);
  EXPECT_EQ(info.cache_state, CacheState::kUnharmed);
  if (c.index) {
    EXPECT_EQ(info.index, *c.index);
  }
  if (c.got) {
    EXPECT_EQ(info.got, *c.got);
  }
  if (c.limit) {
    EXPECT_EQ(info.limit, *c.limit);
  }
  EXPECT_EQ(result.answer, nullptr);
  EXPECT_EQ(cache.lent().Copy() == before, true);
  EXPECT_EQ(other.lent().Copy() == before_other, true);
  EXPECT_EQ(read_only.lent().Copy() == before_read_only, true);
  for (const RegionListing& region : session->memory().ListRegions()) EXPECT_EQ(region.pins, 0u);
  // The key is free again, and a good call runs with it.
  CompressSpec good = RecencySpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 8);
  good.header = spec.header;
  EXPECT_EQ(ReasonOf(RunCall(world, session, good).status), "ok");
}

INSTANTIATE_TEST_SUITE_P(Planner, Refusal, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

class Planner : public testing::Test {
 protected:
  EngineWorld world_;
  std::shared_ptr<Session> session_ = world_.Attach();
};

TEST_F(Planner, TheSceneOfTheRefusalsIsGoodItself) {
  WorkerCache cache(session_, {});
  CompressSpec spec = RandomSpec(
      cache, {cache.Sequence(1, 16, {0, 1, 2, 3}), cache.Sequence(2, 13, {4, 5, 6, 7})}, 8);
  spec.policy.score.scorer = Scorer::kAttention;
  spec.inputs.source = AttentionSource::kColumnSums;
  spec.inputs.sums = SumsAt(cache, cache.lent().region_id());
  spec.sequences[0].rows_count = spec.sequences[1].rows_count = 1;
  ActInPlace(spec);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "ok");
}

TEST_F(Planner, OpaqueRowsCanBeMovedAndNotScored) {
  WorkerCache plain(session_, {});
  CacheSpec opaque = plain.spec();
  for (LayerSpec& layer : opaque.layers) {
    for (ViewLayout* view : {&layer.k.layout, &layer.v.layout}) {
      view->opaque_row_bytes = view->row_elems * 4;
      view->row_elems = 0;
      view->elem_stride = 0;
    }
  }
  const uint64_t cache_id = RegisterCache(session_, opaque);
  CompressSpec spec = RandomSpec(plain, {plain.Sequence(1, 16, {0, 1, 2, 3})}, 8);
  spec.cache_id = cache_id;
  ActInPlace(spec);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "ok");

  spec = RandomSpec(plain, {plain.Sequence(2, 16, {4, 5, 6, 7})}, 8);
  spec.cache_id = cache_id;
  spec.inputs.source = AttentionSource::kQuery;
  spec.inputs.q = QueriesAt(plain, plain.lent().region_id(), 0);
  spec.sequences[0].rows_count = 4;
  spec.policy.score.scorer = Scorer::kAttention;
  CallResult result = RunCall(world_, session_, spec);
  EXPECT_EQ(ReasonOf(result.status), "unsupported");
  EXPECT_EQ(FieldOf(result.status), "cache_id");
}

TEST_F(Planner, CopyNeedsTheSameGeometry) {
  const CacheShape shapes[] = {{.heads = {2, 1}},
                               {.dk = 5},
                               {.dv = 4},
                               {.dtype = DType::kF16},
                               {.companion_bytes = 3},
                               {.heads = {2}},
                               {.heads = {2, 2, 2}},
                               {.row_scales = true}};
  WorkerCache cache(session_, {});
  for (const CacheShape& shape : shapes) {
    WorkerCache target(session_, shape);
    CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 8);
    spec.sequences[0].destination = {0, 1};
    ActCopy(spec, target.id());
    const CallResult result = RunCall(world_, session_, spec);
    EXPECT_EQ(ReasonOf(result.status), "geometry_invalid");
    EXPECT_EQ(FieldOf(result.status), "act.copy_to.cache_id");
    world_.engine().WaitIdle(10'000);
  }
}

TEST_F(Planner, CopyIntoOtherBlockSizesAndStrides) {
  WorkerCache cache(session_, {});
  WorkerCache target(session_, {.blocks = 8, .block_slots = 3, .transposed_keys = true}, 2);
  CompressSpec spec = RandomSpec(cache, {cache.Sequence(1, 16, {0, 1, 2, 3})}, 8);
  spec.sequences[0].destination = {7, 1, 5};
  ActCopy(spec, target.id());
  const auto from = cache.lent().Copy();
  auto expected = target.lent().Copy();
  const CallResult result = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(result.status), "ok");
  const SequenceOutcome& outcome = CompressOf(result).sequences[0];
  cache.Gather(CompressOf(result), outcome, spec.sequences[0], spec.sequences[0].destination,
               target, from, expected);
  EXPECT_EQ(target.lent().Copy() == expected, true);
  EXPECT_EQ(outcome.blocks_used, 3u);
}

TEST_F(Planner, JobThatDoesNotFitItsLedgerSlot) {
  WorkerCache cache(session_,
                    {.blocks = 256, .block_slots = 1, .heads = std::vector<uint32_t>(40, 8)});
  CompressSpec spec = RecencySpec(cache, {}, 1);
  for (int32_t i = 0; i < 127; ++i)
    spec.sequences.push_back(cache.Sequence(i + 1u, 2, {2 * i, 2 * i + 1}));
  ActInPlace(spec);
  EXPECT_EQ(ReasonOf(RunCall(world_, session_, spec).status), "ok");  // 5,080 units of 48 bytes
  for (SequenceSpec& sequence : spec.sequences) sequence.sequence_id += 1000;
  spec.header.key = NewKey();
  spec.sequences.push_back(cache.Sequence(999, 1, {255}));
  spec.sequences.resize(128);
  const uint64_t fits = (262'128 / 64 * 64 - 64) / 48;  // of 1 MiB in 4 slots
  CallResult result = RunCall(world_, session_, spec);
  EXPECT_EQ(ReasonOf(result.status), 128 * 40 <= fits ? "ok" : "ledger_too_small");
  for (int i = 0; i < 20; ++i) {
    SequenceSpec empty = cache.Sequence(5000u + static_cast<uint64_t>(i), 0, {});
    spec.sequences.push_back(empty);
  }
  for (SequenceSpec& sequence : spec.sequences) sequence.sequence_id += 2000;
  spec.header.key = NewKey();
  result = RunCall(world_, session_, spec);
  ASSERT_EQ(ReasonOf(result.status), "ledger_too_small");
  EXPECT_EQ(GetErrorInfo(result.status)->got, 148u * 40);
  EXPECT_EQ(GetErrorInfo(result.status)->limit, fits);
}

TEST(PlannerLimits, AnswerTooLargeIsRefusedBeforeAnyMove) {
  EngineLimits limits;
  limits.max_response_bytes = 1500;
  EngineWorld world(limits);
  const auto session = world.Attach();
  WorkerCache cache(session, {});
  const auto before = cache.lent().Copy();
  CompressSpec spec = RandomSpec(
      cache, {cache.Sequence(1, 64, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})}, 60);
  ActInPlace(spec);
  const CallResult result = RunCall(world, session, spec);
  ASSERT_EQ(ReasonOf(result.status), "result_too_large");
  EXPECT_EQ(FieldOf(result.status), "output");
  EXPECT_EQ(GetErrorInfo(result.status)->limit, 1500u);
  EXPECT_GT(GetErrorInfo(result.status)->got, 1500u);
  EXPECT_EQ(world.hooks().moves, 0);
  EXPECT_EQ(cache.lent().Copy() == before, true);
}

// Of the same call the smaller formats fit, and a stored answer is what the first one was.
TEST(PlannerLimits, SmallerFormatsFitWhereIndicesDoNot) {
  for (const auto format : {KeptFormat::kBitmap, KeptFormat::kCounts}) {
    EngineLimits limits;
    limits.max_response_bytes = 1500;
    EngineWorld world(limits);
    const auto session = world.Attach();
    WorkerCache cache(session, {});
    CompressSpec spec = RandomSpec(
        cache, {cache.Sequence(1, 64, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})}, 60);
    const CallResult refused = RunCall(world, session, spec);
    ASSERT_EQ(ReasonOf(refused.status), "result_too_large");
    spec.format = format;
    spec.header.key = NewKey();
    ActInPlace(spec);
    const CallResult result = RunCall(world, session, spec);
    ASSERT_EQ(ReasonOf(result.status), "ok");
    const SequenceOutcome& outcome = CompressOf(result).sequences[0];
    EXPECT_TRUE(outcome.triage.kept.empty());
    ASSERT_TRUE(outcome.packed.has_value());
    for (const int32_t count : outcome.packed->counts) EXPECT_EQ(count, 60);
    EXPECT_EQ(outcome.packed->bitmaps.size(),
              format == KeptFormat::kBitmap ? outcome.packed->counts.size() * 8 : 0);
    EXPECT_LE(result.answer->bytes(), 1500u);
    const CallResult again = RunCall(world, session, spec);
    EXPECT_TRUE(again.replayed);
    EXPECT_EQ(CompressOf(again).sequences[0].packed->bitmaps, outcome.packed->bitmaps);
  }
}

}  // namespace
}  // namespace kvtriage
