// CacheBlend end to end through the engine, on the toy transformer of the reference: chunks are
// prefilled alone, glued, and a part of their rows is recomputed and fused back. The cache is
// float64 (a row of n doubles is lent as 2n floats: fusing and gathering copy bytes), so whatever
// differs from a full prefill is the blend's own doing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/golden_set.h"
#include "tests/support/golden_inputs.h"
#include "tests/support/toy_transformer.h"
#include "tests/unit/engine/engine_world.h"

namespace kvtriage {
namespace {

using nlohmann::json;
using Toy = ToyTransformer;

constexpr uint32_t kRows = 56, kSuffix = 8, kCheckLayer = 1;
constexpr uint32_t kChunks[] = {24, 24};
constexpr uint64_t kPlane = uint64_t{kRows} * Toy::kKvRow * sizeof(double);

struct Blended {
  std::vector<int32_t> rows;
  Doubles out;  // of those rows
  std::vector<Doubles> k, v;
};

// A worker that blends with the service.
class Blender {
 public:
  explicit Blender(const Toy& toy) : toy_(toy), lent_(session_, 1u << 18) {
    CacheSpec cache;
    for (uint32_t l = 0; l < Toy::kLayers; ++l) {
      LayerSpec layer;
      layer.layer_index = l;
      layer.q_heads = Toy::kQueryHeads;
      layer.kv_heads = Toy::kKvHeads;
      layer.k = View(PlaneOf(l, false));
      layer.v = View(PlaneOf(l, true));
      cache.layers.push_back(layer);
    }
    cache.num_layers = Toy::kLayers;
    cache_id_ = RegisterCache(session_, cache);
  }

  Blended Blend(const Doubles& x, double ratio, bool partial, bool wrong_mask) {
    Glue(x);
    ++generation_;
    revision_ = 0;
    std::vector<int32_t> all(kRows);
    std::iota(all.begin(), all.end(), 0);
    Blended out{all, x, {}, {}};
    std::vector<int32_t> limits(kRows);
    std::iota(limits.begin(), limits.end(), 1);
    for (uint32_t l = 0; l < Toy::kLayers; ++l) {
      Toy::Projected fresh = toy_.Project(l, out.out, out.rows);
      if (l == kCheckLayer) {
        limits = Select(fresh.v, ratio, out);  // `out` now is the selected rows
        if (!partial) Fuse(l, {}, fresh);
        fresh = toy_.Project(l, out.out, out.rows);
        if (wrong_mask) {
          std::iota(limits.begin(), limits.end(), static_cast<int32_t>(kRows + 1 - limits.size()));
        }
      }
      if (l < kCheckLayer) {
        Put(PlaneOf(l, false), fresh.k);
        Put(PlaneOf(l, true), fresh.v);
      } else if (l > kCheckLayer || partial) {
        Fuse(l, out.rows, fresh);
      }
      out.k.push_back(Get(PlaneOf(l, false), kRows * Toy::kKvRow));
      out.v.push_back(Get(PlaneOf(l, true), kRows * Toy::kKvRow));
      out.out = toy_.Step(l, out.out, fresh.q, out.k.back(), out.v.back(), limits);
    }
    return out;
  }

 private:
  static uint64_t PlaneOf(uint32_t layer, bool values) {
    return (2 * layer + (values ? 1 : 0)) * kPlane;
  }
  static constexpr uint64_t kKeys = 6 * kPlane, kValues = 7 * kPlane;  // of a Fuse
  static constexpr uint64_t kFresh = 8 * kPlane, kCached = 9 * kPlane;
  static constexpr uint64_t kResidual = 10 * kPlane, kGathered = 12 * kPlane;

  ViewSpec View(uint64_t offset) const {
    ViewSpec view;
    view.region_id = lent_.region_id();
    view.offset = offset;
    view.layout.num_blocks = 1;
    view.layout.block_slots = kRows;
    view.layout.heads = Toy::kKvHeads;
    view.layout.row_elems = 2 * Toy::kHeadSize;
    view.layout.elem_stride = 4;
    view.layout.head_stride = Toy::kHeadSize * sizeof(double);
    view.layout.slot_stride = view.layout.head_stride * Toy::kKvHeads;
    view.layout.block_stride = kPlane;
    return view;
  }
  TensorSpec Tensor(uint64_t offset, uint32_t rows, uint32_t heads, uint32_t elems) const {
    TensorSpec tensor;
    tensor.region_id = lent_.region_id();
    tensor.offset = offset;
    tensor.rows = rows;
    tensor.heads = heads;
    tensor.elems = elems;
    tensor.elem_stride = 4;
    tensor.head_stride = 4 * elems;
    tensor.row_stride = tensor.head_stride * heads;
    tensor.layer_stride = tensor.row_stride * rows;
    return tensor;
  }
  void Put(uint64_t offset, const Doubles& x) {
    std::memcpy(lent_.data() + offset, x.data(), x.size() * sizeof(double));
  }
  Doubles Get(uint64_t offset, size_t count) const {
    Doubles x(count);
    std::memcpy(x.data(), const_cast<Lent&>(lent_).data() + offset, count * sizeof(double));
    return x;
  }
  void PutFloats(uint64_t offset, const Doubles& x) {
    const std::vector<float> narrow(x.begin(), x.end());
    std::memcpy(lent_.data() + offset, narrow.data(), narrow.size() * sizeof(float));
  }

  // The chunks' own prefills, their keys turned to the places they get.
  void Glue(const Doubles& x) {
    uint32_t at = 0;
    for (const uint32_t rows : kChunks) {
      const Doubles chunk(x.begin() + at * Toy::kChannels,
                          x.begin() + (at + rows) * Toy::kChannels);
      Toy::Prefilled alone = toy_.Prefill(chunk);
      for (uint32_t l = 0; l < Toy::kLayers; ++l) {
        Toy::Rotate(alone.k[l], at);
        const uint64_t offset = uint64_t{at} * Toy::kKvRow * sizeof(double);
        Put(PlaneOf(l, false) + offset, alone.k[l]);
        Put(PlaneOf(l, true) + offset, alone.v[l]);
      }
      at += rows;
    }
  }

  // Names the rows by their values' divergence, and gathers their residuals. Answers their limits.
  std::vector<int32_t> Select(const Doubles& fresh_values, double ratio, Blended& out) {
    PutFloats(kFresh, fresh_values);
    PutFloats(kCached, Get(PlaneOf(kCheckLayer, true), kRows * Toy::kKvRow));
    Put(kResidual, out.out);
    SelectRecomputeSpec spec;
    spec.header.key = NewKey();
    spec.rows = kRows;
    spec.suffix = kSuffix;
    spec.ratio = ratio;
    spec.first_position = 0;
    spec.fresh.tensor = Tensor(kFresh, kRows, Toy::kKvHeads, Toy::kHeadSize);
    spec.cached.tensor = Tensor(kCached, kRows, Toy::kKvHeads, Toy::kHeadSize);
    spec.gather.emplace().from.tensor = Tensor(kResidual, kRows, 1, 2 * Toy::kChannels);
    spec.gather->to = Tensor(kGathered, kRows, 1, 2 * Toy::kChannels);
    const CallResult result = Start(world_, session_, std::move(spec)).Get();
    EXPECT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    const auto& answer = std::get<RecomputeAnswer>(result.answer->body);
    out.rows = answer.rows;
    out.out = Get(kGathered, answer.rows.size() * Toy::kChannels);
    return answer.limits;
  }

  // No rows: all of them.
  void Fuse(uint32_t layer, const std::vector<int32_t>& rows, const Toy::Projected& fresh) {
    Put(kKeys, fresh.k);
    Put(kValues, fresh.v);
    FuseSpec spec;
    spec.header.key = NewKey();
    spec.cache_id = cache_id_;
    spec.layers = {layer};
    spec.sequence.sequence_id = 1;
    spec.sequence.generation = generation_;
    spec.sequence.kv_revision = revision_;
    spec.sequence.logical_len = spec.sequence.physical_len = kRows;
    spec.sequence.table = {0};
    spec.sequence.sharing = Sharing::kAllPrivate;
    spec.rows = rows;
    spec.full = rows.empty();
    const auto count = static_cast<uint32_t>(rows.empty() ? kRows : rows.size());
    spec.keys = Tensor(kKeys, count, Toy::kKvHeads, 2 * Toy::kHeadSize);
    spec.values = Tensor(kValues, count, Toy::kKvHeads, 2 * Toy::kHeadSize);
    const CallResult result = Start(world_, session_, std::move(spec)).Get();
    ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    revision_ = std::get<FuseAnswer>(result.answer->body).kv_revision;
  }

  const Toy& toy_;
  EngineWorld world_{{}, nullptr, MakeCpuBackend(1)};
  std::shared_ptr<Session> session_ = world_.Attach();
  Lent lent_;
  uint64_t cache_id_ = 0;
  uint32_t generation_ = 0, revision_ = 0;
};

double Largest(const Doubles& a, const Doubles& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

// Relative error of the suffix, whose rows every blend recomputes.
double SuffixError(const Doubles& out, const Doubles& full) {
  double off = 0, all = 0;
  for (size_t i = 1; i <= kSuffix * Toy::kChannels; ++i) {
    const double want = full[full.size() - i];
    off += std::pow(out[out.size() - i] - want, 2);
    all += want * want;
  }
  return std::sqrt(off / all);
}

class GoldenToy : public testing::TestWithParam<bool> {};  // whether the check layer is PARTIAL

TEST_P(GoldenToy, BlendsAsTheReferenceDoes) {
  const GoldenFile file("blend-toy");
  const uint64_t number = file["case_number"];
  const Toy toy(number);
  const Doubles x = Toy::Tokens(number * 1000 + 7, kRows);
  EXPECT_LT(Largest(toy.Prefill(x).out, file.Doubles(file["prefill"])), 1e-8);
  const json& want = file["blends"].at(GetParam() ? 1 : 0);
  ASSERT_EQ(want.at("write_back"), GetParam() ? "partial" : "full");
  const Blended blend = Blender(toy).Blend(x, want.at("ratio"), GetParam(), false);
  EXPECT_EQ(blend.rows, file.Rows(want.at("rows")));
  EXPECT_LT(Largest(blend.out, file.Doubles(want.at("output"))), 1e-8);
  // The reference stores [heads, rows, channels].
  const Doubles keys = file.Doubles(want.at("keys")), values = file.Doubles(want.at("values"));
  for (uint32_t h = 0; h < Toy::kKvHeads; ++h) {
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t c = 0; c < Toy::kHeadSize; ++c) {
        const size_t ours = r * Toy::kKvRow + h * Toy::kHeadSize + c;
        const size_t theirs = (size_t{h} * kRows + r) * Toy::kHeadSize + c;
        ASSERT_NEAR(blend.k.back()[ours], keys[theirs], 1e-8);
        ASSERT_NEAR(blend.v.back()[ours], values[theirs], 1e-8);
      }
    }
  }
}

TEST_P(GoldenToy, RatioOneIsAFullPrefillAndTheErrorFallsOnTheWay) {
  for (const uint64_t number : {419, 420, 421, 1419}) {
    const Toy toy(number);
    Blender blender(toy);
    for (const uint64_t seed : {77, 78, 79}) {
      SCOPED_TRACE(testing::Message() << "weights " << number << ", tokens " << seed);
      const Doubles x = Toy::Tokens(seed, kRows);
      const Toy::Prefilled full = toy.Prefill(x);
      double before = INFINITY;
      for (const double ratio : {0.0, 0.1, 0.2, 0.3, 0.4}) {
        const Blended blend = blender.Blend(x, ratio, GetParam(), false);
        const double error = SuffixError(blend.out, full.out);
        EXPECT_LT(error, before) << "ratio " << ratio;
        EXPECT_GT(error, 1e-4) << "ratio " << ratio;
        before = error;
      }
      const Blended all = blender.Blend(x, 1.0, GetParam(), false);
      ASSERT_EQ(all.rows.size(), kRows);
      EXPECT_LT(Largest(all.out, full.out), 1e-12);
      for (uint32_t l = 0; l < Toy::kLayers; ++l) {
        EXPECT_LT(Largest(all.k[l], full.k[l]), 1e-12);
        EXPECT_LT(Largest(all.v[l], full.v[l]), 1e-12);
      }
    }
  }
}

// A triangle aligned to the bottom right, as used when fewer queries than keys are computed, lets
// scattered rows see keys of their future.
TEST_P(GoldenToy, ABottomRightMaskIsWrong) {
  const Toy toy(419);
  Blender blender(toy);
  const Doubles x = Toy::Tokens(77, kRows);
  const Blended right = blender.Blend(x, 0.15, GetParam(), false);
  const Blended wrong = blender.Blend(x, 0.15, GetParam(), true);
  ASSERT_EQ(right.rows, wrong.rows);
  EXPECT_GT(Largest(right.out, wrong.out), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(WriteBack, GoldenToy, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Partial" : "Full";
                         });

// Gradual filtering: two check layers behind a prefix hit.
TEST(GoldenHkvdPrefix, TheSecondLayerChoosesAmongTheFirstOnes) {
  const GoldenFile file("hkvd-prefix");
  const uint32_t rows = file["shape"].at("N"), heads = file["shape"].at("Hk"),
                 elems = file["shape"].at("d");
  const uint64_t number = file["case_number"];
  EngineWorld world({}, nullptr, MakeCpuBackend(2));
  const std::shared_ptr<Session> session = world.Attach();
  const size_t count = size_t{rows} * heads * elems;
  Lent lent(session, 2 * count * sizeof(float));
  std::optional<PreviousHkvd> previous;
  for (uint64_t layer = 0; layer < 2; ++layer) {
    const uint64_t stream = (number + 1000 * layer) * 1000;
    const std::vector<float> fresh = GridValues(stream + 3, count);
    std::vector<float> cached = GridValues(stream + 6, count);
    for (size_t i = 0; i < count; ++i) {
      if (i / elems / heads % 3 != 0) cached[i] = fresh[i];
    }
    std::memcpy(lent.data(), fresh.data(), count * sizeof(float));
    std::memcpy(lent.data() + count * sizeof(float), cached.data(), count * sizeof(float));
    TensorSpec tensor;
    tensor.region_id = lent.region_id();
    tensor.rows = rows;
    tensor.heads = heads;
    tensor.elems = elems;
    tensor.elem_stride = 4;
    tensor.head_stride = 4 * elems;
    tensor.row_stride = tensor.head_stride * heads;
    SelectRecomputeSpec spec;
    spec.header.key = NewKey();
    spec.rows = rows;
    spec.prefix = file["prefix"];
    spec.suffix = file["suffix"];
    spec.first_position = 0;
    spec.previous = previous;
    spec.fresh.tensor = tensor;
    tensor.offset = count * sizeof(float);
    spec.cached.tensor = tensor;
    const json& want = file["layers"].at(layer);
    spec.ratio = want.at("ratio");
    const CallResult result = Start(world, session, std::move(spec)).Get();
    ASSERT_EQ(ReasonOf(result.status), "ok") << result.status.ToString();
    const auto& answer = std::get<RecomputeAnswer>(result.answer->body);
    EXPECT_EQ(answer.rows, file.Rows(want.at("rows")));
    EXPECT_EQ(answer.base, want.at("base"));
    EXPECT_NEAR(answer.gap, want.at("gap"), 1e-4);
    previous.emplace().base = answer.base;
    for (size_t i = 0; i < answer.rows.size(); ++i) {
      if (!answer.is_must[i]) previous->hkvd.push_back(answer.rows[i]);
    }
    EXPECT_EQ(previous->hkvd, file.Rows(want.at("hkvd")));
  }
}

}  // namespace
}  // namespace kvtriage
