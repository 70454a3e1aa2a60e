#include "client/cpp/fates.h"

#include "gtest/gtest.h"

namespace kvtriage::client {
namespace {

using wire::LedgerUnit;

Sequence Of(uint64_t id, uint64_t rows, std::vector<int32_t> table) {
  Sequence sequence;
  sequence.sequence_id = id;
  sequence.logical_len = sequence.physical_len = rows;
  sequence.kv_revision = 3;
  sequence.table = std::move(table);
  return sequence;
}

SlotReading Settled(std::vector<SlotUnit> units) { return {SlotState::kSettled, std::move(units)}; }

constexpr uint32_t kLayers = 2, kBlockSlots = 4;

TEST(Fates, AllDoneIsAppliedWithTheCutTable) {
  const SlotReading reading =
      Settled({{7, 0, LedgerUnit::kDone, {5, 4}}, {7, 1, LedgerUnit::kDone, {3, 5}}});
  Sequence sequence = Of(7, 16, {9, 8, 7, 6, 5});
  sequence.first_slot = 3;
  const auto fates = FatesOfSlot(reading, {sequence}, kLayers, kBlockSlots);
  ASSERT_EQ(fates.size(), 1u);
  EXPECT_EQ(fates[0].outcome, Outcome::kApplied);
  EXPECT_EQ(fates[0].kept, 5u);
  EXPECT_EQ(fates[0].kv_revision, 4u);
  EXPECT_EQ(fates[0].kept_rows, (std::vector<uint32_t>{5, 4, 3, 5}));
  // https://github.com/sgl-project/mini-sglang/pull/142: no freed page stays in the table.
  EXPECT_EQ(fates[0].table, (std::vector<int32_t>{9, 8}));  // 3 + 5 rows: two blocks of four
}

TEST(Fates, SequencesAreIndependent) {
  const SlotReading reading = Settled({
      {1, 0, LedgerUnit::kDone, {2}},
      {1, 1, LedgerUnit::kDone, {2}},
      {2, 0, LedgerUnit::kDone, {2}},
      {2, 1, LedgerUnit::kMoving, {2}},
      {3, 0, LedgerUnit::kPending, {0}},
      {3, 1, LedgerUnit::kPending, {0}},
      {4, 0, LedgerUnit::kUnharmed, {0}},
      {4, 1, LedgerUnit::kUnharmed, {0}},
  });
  const auto fates = FatesOfSlot(
      reading, {Of(1, 4, {0}), Of(2, 4, {1}), Of(3, 4, {2}), Of(4, 4, {3})}, kLayers, kBlockSlots);
  EXPECT_EQ(fates[0].outcome, Outcome::kApplied);
  EXPECT_EQ(fates[1].outcome, Outcome::kDamaged);
  EXPECT_EQ(fates[2].outcome, Outcome::kUnchanged);
  EXPECT_EQ(fates[3].outcome, Outcome::kUnchanged);
  EXPECT_EQ(OutcomeOf(fates), Outcome::kDamaged);
}

TEST(Fates, ASequenceThatIsHalfMovedIsDamagedWhateverTheOtherHalf) {
  for (const LedgerUnit other :
       {LedgerUnit::kPending, LedgerUnit::kMoving, LedgerUnit::kUnharmed}) {
    const SlotReading reading = Settled({{7, 0, LedgerUnit::kDone, {2}}, {7, 1, other, {2}}});
    EXPECT_EQ(FatesOfSlot(reading, {Of(7, 4, {0})}, kLayers, kBlockSlots)[0].outcome,
              Outcome::kDamaged);
  }
}

TEST(Fates, UnitsThatDoNotAddUpAreDamaged) {
  const auto outcome = [](std::vector<SlotUnit> units) {
    return FatesOfSlot(Settled(std::move(units)), {Of(7, 4, {0})}, kLayers, kBlockSlots)[0].outcome;
  };
  EXPECT_EQ(outcome({{7, 0, LedgerUnit::kDone, {2}}}), Outcome::kDamaged);  // a layer is missing
  EXPECT_EQ(outcome({{8, 0, LedgerUnit::kDone, {2}}, {8, 1, LedgerUnit::kDone, {2}}}),
            Outcome::kDamaged);
  // More kept rows than there were.
  EXPECT_EQ(outcome({{7, 0, LedgerUnit::kDone, {5}}, {7, 1, LedgerUnit::kDone, {5}}}),
            Outcome::kDamaged);
}

TEST(Fates, ABrokenSlotDamagesAndAnUntouchedOneDoesNot) {
  const std::vector<Sequence> sequences = {Of(1, 4, {0}), Of(2, 4, {1})};
  const auto broken = FatesOfSlot({SlotState::kBroken, {}}, sequences, kLayers, kBlockSlots);
  EXPECT_EQ(broken[0].outcome, Outcome::kDamaged);
  EXPECT_EQ(broken[1].outcome, Outcome::kDamaged);
  const auto untouched = FatesOfSlot({SlotState::kUntouched, {}}, sequences, kLayers, kBlockSlots);
  EXPECT_EQ(OutcomeOf(untouched), Outcome::kUnchanged);
}

}  // namespace
}  // namespace kvtriage::client
