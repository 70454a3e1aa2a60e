#include "kvtriage/kernels/divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/core/checked_math.h"
#include "tests/support/each_device.h"
#include "tests/support/random_layout.h"

namespace kvtriage {
namespace {

using testing::ElementsAre;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr DType kAnyType[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                              DType::kF8E5M2};

// Rows [rows][heads][elems] stored at any strides; every other byte is NaN.
struct StoredRows {
  std::vector<std::byte> memory;
  std::vector<int32_t> table;
  DivergenceRows rows;
  std::vector<float> scales;

  StoredRows(const std::vector<float>& x, uint32_t count, uint32_t heads, uint32_t elems,
             DType type, uint32_t first_row, std::mt19937& random) {
    const uint32_t slots[] = {1, 16, 64, count + 20};
    LayoutShape shape{
        .block_slots = slots[random() % 4], .heads = heads, .row_elems = elems, .dtype = type};
    const uint32_t first_slot = random() % 20;
    const uint32_t blocks = static_cast<uint32_t>(CeilDiv(first_slot + count, shape.block_slots));
    shape.num_blocks = blocks + random() % 2;
    rows.view.layout = RandomLayout(shape, random);
    memory.assign(LayoutBytes(rows.view.layout), std::byte{0xFF});
    table = RandomTable(blocks, shape.num_blocks, random);
    rows.view.base = memory.data();
    rows.sequence = {table.data(), first_slot, count};
    rows.first_row = first_row;
    for (uint32_t p = 0; p < count; ++p) {
      for (uint32_t h = 0; h < heads; ++h) {
        for (uint32_t e = 0; e < elems; ++e) {
          StoreElement(At(h, p, e), type, x[(size_t{p} * heads + h) * elems + e]);
        }
      }
    }
  }

  // Gives fp8 rows a scale: one for all, or one each.
  void SetScales(std::mt19937& random) {
    ViewLayout& layout = rows.view.layout;
    if (!IsF8(layout.dtype)) return;
    layout.scale = 0.37f;
    if (random() % 2 == 0) return;
    scales.resize(size_t{layout.num_blocks} * layout.heads * layout.block_slots);
    for (float& scale : scales) scale = std::ldexp(1.3f, static_cast<int>(random() % 5) - 2);
    rows.view.scales = {reinterpret_cast<const std::byte*>(scales.data()),
                        uint64_t{4} * layout.heads * layout.block_slots,
                        uint64_t{4} * layout.block_slots, 4};
  }

  double Number(uint32_t head, uint32_t p, uint32_t e) const {
    return LoadElement(At(head, p, e), rows.view.layout.dtype) *
           RowScale(rows.view, rows.sequence, head, p);
  }

  std::byte* At(uint32_t head, uint32_t p, uint32_t e) const {
    return RowAddress(rows.view, rows.sequence, head, p) + e * rows.view.layout.elem_stride;
  }
};

struct PlainSums {
  double difference = 0, old = 0;
};

PlainSums SumsByHand(const StoredRows& fresh, const StoredRows& cached, uint32_t p) {
  const ViewLayout& layout = fresh.rows.view.layout;
  PlainSums sums;
  for (uint32_t h = 0; h < layout.heads; ++h) {
    for (uint32_t e = 0; e < layout.row_elems; ++e) {
      const double x = fresh.Number(h, p - fresh.rows.first_row, e);
      const double y = cached.Number(h, p - cached.rows.first_row, e);
      sums.difference += (x - y) * (x - y);
      sums.old += y * y;
    }
  }
  return sums;
}

double DivergenceByHand(const StoredRows& fresh, const StoredRows& cached, uint32_t p,
                        DivergenceMetric metric) {
  const PlainSums sums = SumsByHand(fresh, cached, p);
  return metric == DivergenceMetric::kL2 ? sums.difference : sums.difference / (sums.old + 1e-6);
}

std::vector<float> RandomRows(size_t count, std::mt19937& random) {
  std::vector<float> x(count);
  std::normal_distribution<float> draw(0, 2);
  for (float& value : x) value = draw(random);
  return x;
}

using DivergeTest = EachDevice;
KVTRIAGE_ON_EACH_DEVICE(DivergeTest);

TEST_P(DivergeTest, EqualsFloat64OnEveryTypeAndLayout) {
  for (uint32_t seed = 0; seed < Times(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const uint32_t heads = 1 + random() % 4, elems = 1 + random() % 140;
    const uint32_t rows = 1 + random() % 150, first_fresh = random() % 9,
                   first_cached = random() % 9;
    StoredRows fresh(RandomRows(size_t{rows + 10} * heads * elems, random), rows + 10, heads, elems,
                     kAnyType[random() % 5], first_fresh, random);
    StoredRows cached(RandomRows(size_t{rows + 10} * heads * elems, random), rows + 10, heads,
                      elems, kAnyType[random() % 5], first_cached, random);
    fresh.SetScales(random);
    cached.SetScales(random);
    std::vector<int32_t> candidates;
    for (uint32_t p = std::max(first_fresh, first_cached); p < rows; ++p) {
      if (random() % 3 != 0) candidates.push_back(static_cast<int32_t>(p));
    }
    for (const DivergenceMetric metric : {DivergenceMetric::kL2, DivergenceMetric::kRelative}) {
      const DivergenceRequest request{fresh.rows, cached.rows, candidates, metric};
      std::vector<float> first;
      ForEachWay([&] {
        DivergenceResult result;
        ASSERT_TRUE(Diverge(request, result, 1 + static_cast<int>(random() % 8)).ok());
        ASSERT_EQ(result.divergence.size(), candidates.size());
        for (size_t i = 0; i < candidates.size(); ++i) {
          const double right =
              DivergenceByHand(fresh, cached, static_cast<uint32_t>(candidates[i]), metric);
          ASSERT_NEAR(result.divergence[i], right, 1e-5 * right);
        }
        // The same bits, whatever the instruction set and the number of threads.
        if (first.empty()) first = result.divergence;
        EXPECT_EQ(result.divergence, first);
      });
    }
  }
}

// What ranks of a model need who add their sums up.
TEST_P(DivergeTest, SumsApartAreThoseOfTheQuotient) {
  for (uint32_t seed = 0; seed < Times(20); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const DType type = kAnyType[seed % 5];
    const uint32_t heads = 1 + random() % 3, elems = 1 + random() % 70;
    const StoredRows fresh(RandomRows(20 * heads * elems, random), 20, heads, elems, type, 0,
                           random);
    const StoredRows cached(RandomRows(20 * heads * elems, random), 20, heads, elems, type, 0,
                            random);
    const std::vector<int32_t> rows = {0, 3, 4, 7, 11, 19};
    DivergenceRequest request{fresh.rows, cached.rows, rows, DivergenceMetric::kRelative};
    ForEachWay([&] {
      request.apart = false;
      DivergenceResult quotient, sums;
      ASSERT_TRUE(Diverge(request, quotient).ok());
      EXPECT_TRUE(quotient.old.empty());
      request.apart = true;
      ASSERT_TRUE(Diverge(request, sums).ok());
      ASSERT_EQ(sums.old.size(), rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        const PlainSums right = SumsByHand(fresh, cached, static_cast<uint32_t>(rows[i]));
        EXPECT_NEAR(sums.divergence[i], right.difference, 1e-5 * right.difference);
        EXPECT_NEAR(sums.old[i], right.old, 1e-5 * right.old);
        EXPECT_EQ(RelativeDivergence(sums.divergence[i], sums.old[i]), quotient.divergence[i]);
      }
    });
  }
}

TEST_P(DivergeTest, LayoutsGiveTheSameBits) {
  std::mt19937 random(4);
  const std::vector<float> x = RandomRows(40 * 3 * 48, random), y = RandomRows(40 * 3 * 48, random);
  std::vector<int32_t> candidates(40);
  std::iota(candidates.begin(), candidates.end(), 0);
  std::vector<float> first;
  for (int repeat = 0; repeat < 30; ++repeat) {
    const StoredRows fresh(x, 40, 3, 48, DType::kF32, 0, random);
    const StoredRows cached(y, 40, 3, 48, DType::kF32, 0, random);
    DivergenceResult result;
    ASSERT_TRUE(Diverge({fresh.rows, cached.rows, candidates, DivergenceMetric::kL2}, result).ok());
    if (first.empty()) first = result.divergence;
    ASSERT_EQ(result.divergence, first);
  }
}

TEST_P(DivergeTest, DamagedRowsAreNotFiniteAndDisturbNoOther) {
  std::mt19937 random(8);
  const float kInf = std::numeric_limits<float>::infinity();
  const float damage[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()};
  for (const DType type : kTypes) {
    for (const float bad : damage) {
      for (int side = 0; side < 3; ++side) {
        std::vector<float> x = RandomRows(8 * 2 * 40, random), y = RandomRows(8 * 2 * 40, random);
        std::mt19937 same(1);
        const StoredRows clean_fresh(x, 8, 2, 40, type, 0, same);
        const StoredRows clean_cached(y, 8, 2, 40, type, 0, same);
        if (side != 1) x[(3 * 2 + 1) * 40 + 37] = bad;
        if (side != 0) y[(3 * 2 + 1) * 40 + 37] = bad;
        same.seed(1);
        const StoredRows fresh(x, 8, 2, 40, type, 0, same);
        const StoredRows cached(y, 8, 2, 40, type, 0, same);
        const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7};
        for (const auto metric : {DivergenceMetric::kL2, DivergenceMetric::kRelative}) {
          ForEachWay([&] {
            DivergenceResult damaged, clean;
            ASSERT_TRUE(Diverge({fresh.rows, cached.rows, rows, metric}, damaged).ok());
            ASSERT_TRUE(Diverge({clean_fresh.rows, clean_cached.rows, rows, metric}, clean).ok());
            for (size_t i = 0; i < rows.size(); ++i) {
              if (i == 3) {
                EXPECT_FALSE(std::isfinite(damaged.divergence[i]));
              } else {
                EXPECT_EQ(damaged.divergence[i], clean.divergence[i]);
              }
            }
          });
        }
      }
    }
  }
}

TEST_P(DivergeTest, NoRows) {
  std::mt19937 random(1);
  const StoredRows rows(RandomRows(10, random), 1, 1, 10, DType::kF32, 0, random);
  DivergenceResult result{.divergence = {1}};
  ASSERT_TRUE(Diverge({rows.rows, rows.rows, {}, DivergenceMetric::kL2}, result).ok());
  EXPECT_TRUE(result.divergence.empty());
}

HkvdResult Select(std::vector<int32_t> candidates, std::vector<float> divergence,
                  std::optional<double> ratio, std::optional<double> threshold, uint32_t base) {
  return SelectHkvd(candidates, divergence, {.ratio = ratio, .threshold = threshold, .base = base});
}

TEST(SelectHkvdTest, ByHand) {
  // Differences 1 9 4 9 0 81. With the last row recomputed anyway, five candidates are left.
  const std::vector<float> diff = {1, 9, 4, 9, 0};
  EXPECT_THAT(Select({0, 1, 2, 3, 4}, diff, 0.4, {}, 5).rows, ElementsAre(1, 3));
  EXPECT_THAT(Select({0, 1, 2, 3, 4}, diff, 0.0, {}, 5).rows, ElementsAre());
  const std::vector<float> all = {1, 9, 4, 9, 0, 81};
  EXPECT_THAT(Select({0, 1, 2, 3, 4, 5}, all, 0.5, {}, 6).rows, ElementsAre(1, 3, 5));
  EXPECT_THAT(Select({0, 1, 2, 3, 4, 5}, all, {}, 9.0, 6).rows, ElementsAre(5));
  EXPECT_THAT(Select({0, 1, 2, 3, 4, 5}, all, {}, -1.0, 6).rows, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(SelectHkvdTest, GapAndShare) {
  const HkvdResult half = Select({0, 1, 2, 3, 4, 5}, {1, 9, 4, 9, 0, 81}, 0.5, {}, 6);
  EXPECT_DOUBLE_EQ(half.gap, 4.0 / 9.0);
  EXPECT_DOUBLE_EQ(half.divergence_share, 99.0 / 104.0);
  const HkvdResult all = Select({3, 7}, {2, 1}, 1.0, {}, 2);
  EXPECT_EQ(all.gap, 0);  // nothing is next
  EXPECT_EQ(all.divergence_share, 1);
  const HkvdResult none = Select({3, 7}, {2, 1}, 0.0, {}, 2);
  EXPECT_EQ(none.gap, 0);  // nothing was chosen
  EXPECT_EQ(none.divergence_share, 0);
  const HkvdResult equal = Select({3, 7}, {0, 0}, 0.5, {}, 2);
  EXPECT_THAT(equal.rows, ElementsAre(3));  // ties: lower row
  EXPECT_EQ(equal.gap, 0);
  EXPECT_EQ(equal.divergence_share, 0);
  EXPECT_TRUE(Select({}, {}, 0.5, {}, 0).rows.empty());
}

// https://github.com/LMCache/LMCache-Ascend/issues/277
TEST(SelectHkvdTest, RowsInWrongCoordinates) {
  // Rows 0..3 are an exact prefix hit; rows and base are those of the whole sequence's rest.
  const std::vector<int32_t> rows = {4, 5, 6, 7, 8, 9};
  const std::vector<float> diff = {0, 9, 0, 0, 7, 0};
  EXPECT_THAT(Select(rows, diff, 0.0, {}, 6).rows, ElementsAre());
  EXPECT_THAT(Select(rows, diff, 1.0 / 3.0, {}, 6).rows, ElementsAre(5, 8));
  EXPECT_THAT(Select(rows, diff, 0.5, {}, 6).rows, ElementsAre(4, 5, 8));
  EXPECT_THAT(Select(rows, diff, 1.0, {}, 6).rows, ElementsAre(4, 5, 6, 7, 8, 9));
}

// https://github.com/LMCache/LMCache/issues/305
TEST(SelectHkvdTest, RatioZeroRecomputes) {
  const std::vector<int32_t> rows = {0, 1, 3, 4, 6, 7};
  const std::vector<float> diff = {5, 4, 3, 2, 1, 6};
  for (const double ratio : {0.0, 0.165, 1e-9}) {
    EXPECT_TRUE(Select(rows, diff, ratio, {}, 6).rows.empty()) << ratio;
  }
  EXPECT_EQ(Select(rows, diff, 1.0, {}, 6).rows, rows);
}

TEST(SelectHkvdTest, AFirstBaseLargerThanTheCandidatesKeepsThem) {
  EXPECT_THAT(Select({2, 5}, {1, 2}, 0.5, {}, 100).rows, ElementsAre(2, 5));
}

}  // namespace
}  // namespace kvtriage
