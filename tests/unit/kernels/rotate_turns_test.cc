// Angles and turns of single rows: hand-checked numbers, both angle modes, M-RoPE planes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvtriage/kernels/rotate.h"

namespace kvtriage {
namespace {

struct Turn {
  std::vector<float> cosines, sines;

  Turn(const Rope& rope, AngleMode mode, const RowPosition& from, const RowPosition& to)
      : cosines(rope.rotary_dim / 2), sines(rope.rotary_dim / 2) {
    TurnBetween(rope, mode, from, to, cosines, sines);
  }
};

std::vector<float> Turned(const Rope& rope, std::vector<float> row, int64_t from, int64_t to) {
  const Turn turn(rope, AngleMode::kExact, AtPosition(from), AtPosition(to));
  TurnRow(rope, turn.cosines, turn.sines, row.data());
  return row;
}

void ExpectRow(const std::vector<float>& row, const std::vector<double>& want) {
  ASSERT_EQ(row.size(), want.size());
  for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], want[i], 1e-6) << i;
}

TEST(RotateTurnsTest, NumbersCheckedByHand) {
  Rope rope{.pairing = RopePairing::kHalf, .rotary_dim = 4, .speeds = {1, 0.01}};
  ExpectRow(Turned(rope, {1, 2, 3, 4}, 0, 3),
            {-1.413352520780, 1.879118066688, -2.828857481741, 4.058191135401});
  rope.pairing = RopePairing::kInterleaved;
  ExpectRow(Turned(rope, {1, 2, 3, 4}, 7, 10),
            {-1.272232512720, -1.838864985141, 2.878668100437, 4.088186635603});
  rope.rotary_dim = 2;
  rope.speeds = {1};
  ExpectRow(Turned(rope, {1, 2, 3, 4}, 0, 3), {-1.272232512720, -1.838864985141, 3, 4});
}

TEST(RotateTurnsTest, ChannelsOutsideKeepTheirValue) {
  const Rope rope{.pairing = RopePairing::kHalf, .rotary_dim = 2, .offset = 1, .speeds = {0.5}};
  const std::vector<float> row = Turned(rope, {9, 1, 0, -9}, 2, 4);
  EXPECT_EQ(row[0], 9);
  EXPECT_EQ(row[3], -9);
  EXPECT_NEAR(row[1], std::cos(1.0), 1e-7);
  EXPECT_NEAR(row[2], std::sin(1.0), 1e-7);
}

// Kind: old position assumed zero. A key turns by the difference of its positions.
// https://github.com/LMCache/LMCache/issues/845
TEST(RotateTurnsTest, TheOldPositionCounts) {
  const Rope rope{.rotary_dim = 4, .speeds = {1, 0.01}};
  const std::vector<float> at_three = Turned(rope, {1, 0, 0, 0}, 0, 3);
  ExpectRow(at_three, {-0.9899924966, 0, 0.1411200081, 0});
  ExpectRow(Turned(rope, at_three, 3, 1), {0.5403023059, 0, 0.8414709848, 0});
}

// Angles of a float32 table are products rounded to float32, so a turn is the difference of two
// rounded angles, and that is not the rounded angle of the difference.
TEST(RotateTurnsTest, TableAnglesAreTheModelsOwn) {
  const Rope rope{.rotary_dim = 2, .speeds = {0.7}};
  const int64_t from = 130'000, to = 131'071;
  const float table_from = static_cast<float>(from) * 0.7f,
              table_to = static_cast<float>(to) * 0.7f;
  const Turn table(rope, AngleMode::kFp32Table, AtPosition(from), AtPosition(to));
  const Turn exact(rope, AngleMode::kExact, AtPosition(from), AtPosition(to));
  const double angle = static_cast<double>(table_to) - static_cast<double>(table_from);
  EXPECT_EQ(table.cosines[0], static_cast<float>(std::cos(angle)));
  EXPECT_EQ(table.sines[0], static_cast<float>(std::sin(angle)));
  EXPECT_EQ(exact.cosines[0], static_cast<float>(std::cos(1071 * 0.7)));
  EXPECT_NE(table.sines[0], exact.sines[0]);
  EXPECT_NEAR(table.sines[0], exact.sines[0], 8e-3);
}

TEST(RotateTurnsTest, SectionsOfMRopeTakeTheirPlanesPosition) {
  const Rope rope{.rotary_dim = 12, .speeds = {1, 1, 1, 1, 1, 1}, .sections = {2, 1, 3}};
  const Turn turn(rope, AngleMode::kExact, {0, 0, 0}, {1, 2, 3});
  const double want[] = {1, 1, 2, 3, 3, 3};
  for (int j = 0; j < 6; ++j) EXPECT_EQ(turn.sines[j], static_cast<float>(std::sin(want[j]))) << j;
  // A plane without pairs is never asked.
  const Rope two{.rotary_dim = 4, .speeds = {1, 1}, .sections = {0, 0, 2}};
  const Turn last(two, AngleMode::kExact, {0, 0, 0}, {1, 2, 3});
  EXPECT_EQ(last.sines[0], static_cast<float>(std::sin(3.0)));
}

}  // namespace
}  // namespace kvtriage
