#include "service/engine/sequence_table.h"

#include <gtest/gtest.h>

#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

SequenceSpec Call(uint64_t rows, uint64_t dropped, uint32_t revision, uint32_t generation = 0,
                  uint64_t id = 1) {
  SequenceSpec call;
  call.sequence_id = id;
  call.generation = generation;
  call.kv_revision = revision;
  call.physical_len = rows;
  call.total_dropped = dropped;
  call.logical_len = rows + dropped;
  return call;
}

// "ok", or the field with both numbers.
std::string Verdict(SequenceTable& table, const SequenceSpec& call) {
  const absl::Status status = table.Check(call);
  if (status.ok()) return "ok";
  EXPECT_EQ(ReasonOf(status), "sequence_stale");
  const ErrorInfo info = *GetErrorInfo(status);
  return info.field + " " + std::to_string(info.got) + "/" + std::to_string(info.limit);
}

TEST(SequenceTable, WithoutARecordAnythingConsistentGoes) {
  SequenceTable table(16);
  EXPECT_EQ(Verdict(table, Call(100, 0, 0)), "ok");
  EXPECT_EQ(Verdict(table, Call(41, 60, 17, 3)), "ok");
  SequenceSpec odd = Call(41, 60, 1);
  odd.physical_len = 100;
  EXPECT_EQ(Verdict(table, odd), "physical_len 100/41");
  odd.total_dropped = 500;
  EXPECT_EQ(Verdict(table, odd), "physical_len 100/0");
}

// Logical and physical length part, and a call that still believes the old length is refused.
// https://github.com/NVIDIA/TensorRT-LLM/pull/15697
TEST(SequenceTable, EvictedRowsAreCounted) {
  SequenceTable table(16);
  EXPECT_EQ(table.Record(Call(100, 0, 0), SequenceEffect::kMoved, 40, PositionEffect::kSame), 1u);
  EXPECT_EQ(Verdict(table, Call(41, 60, 1)), "ok");  // one row appended
  EXPECT_EQ(Verdict(table, Call(40, 60, 1)), "ok");
  EXPECT_EQ(Verdict(table, Call(100, 0, 1)), "physical_len 100/40");
  EXPECT_EQ(Verdict(table, Call(100, 0, 0)), "physical_len 100/40");
  EXPECT_EQ(Verdict(table, Call(41, 60, 0)), "kv_revision 0/1");
  EXPECT_EQ(Verdict(table, Call(41, 60, 2)), "kv_revision 2/1");
  EXPECT_EQ(Verdict(table, Call(39, 60, 1)), "physical_len 39/40");
  EXPECT_EQ(Verdict(table, Call(41, 59, 1)), "physical_len 41/40");
  EXPECT_EQ(table.Record(Call(41, 60, 1), SequenceEffect::kMoved, 30, PositionEffect::kSame), 2u);
  EXPECT_EQ(Verdict(table, Call(30, 71, 2)), "ok");
}

TEST(SequenceTable, GenerationsBeginAnew) {
  SequenceTable table(16);
  table.Record(Call(100, 0, 0, 4), SequenceEffect::kMoved, 40, PositionEffect::kSame);
  EXPECT_EQ(Verdict(table, Call(40, 60, 1, 3)), "generation 3/4");
  EXPECT_EQ(Verdict(table, Call(10, 0, 0, 5)), "ok");
  table.Record(Call(10, 0, 0, 5), SequenceEffect::kNone, 10, PositionEffect::kSame);
  EXPECT_EQ(Verdict(table, Call(40, 60, 1, 4)), "generation 4/5");
  EXPECT_EQ(Verdict(table, Call(12, 0, 0, 5)), "ok");
}

TEST(SequenceTable, NoopChangesNothing) {
  SequenceTable table(16);
  EXPECT_EQ(table.Record(Call(10, 5, 7), SequenceEffect::kNone, 10, PositionEffect::kSame), 7u);
  EXPECT_EQ(Verdict(table, Call(11, 5, 7)), "ok");
  EXPECT_EQ(Verdict(table, Call(9, 5, 7)), "physical_len 9/10");
  EXPECT_EQ(Verdict(table, Call(10, 6, 7)), "physical_len 10/11");
}

TEST(SequenceTable, AdviceAndCopiesMayBeFollowedOrNot) {
  SequenceTable table(16);
  EXPECT_EQ(table.Record(Call(100, 0, 0), SequenceEffect::kAdvice, 40, PositionEffect::kSame), 0u);
  EXPECT_EQ(Verdict(table, Call(100, 0, 0)), "ok");
  EXPECT_EQ(Verdict(table, Call(40, 60, 0)), "ok");
  EXPECT_EQ(Verdict(table, Call(99, 0, 0)), "physical_len 99/100");
  EXPECT_EQ(Verdict(table, Call(39, 60, 0)), "physical_len 39/40");
  EXPECT_EQ(Verdict(table, Call(50, 50, 0)), "physical_len 50/40");
  EXPECT_EQ(table.Record(Call(100, 0, 0), SequenceEffect::kCopied, 30, PositionEffect::kSame), 1u);
  EXPECT_EQ(Verdict(table, Call(100, 0, 0)), "kv_revision 0/1");
  EXPECT_EQ(Verdict(table, Call(100, 0, 1)), "ok");
  EXPECT_EQ(Verdict(table, Call(30, 70, 1)), "ok");
  EXPECT_EQ(table.Record(Call(30, 70, 1), SequenceEffect::kMoved, 20, PositionEffect::kSame),
            2u);  // followed
  EXPECT_EQ(Verdict(table, Call(100, 0, 2)), "physical_len 100/20");
}

TEST(SequenceTable, LeastRecentlyUsedRecordGoesFirst) {
  SequenceTable table(2);
  const auto stale = [&table](uint64_t id) {  // whether there is a record
    return Verdict(table, Call(100, 0, 9, 0, id)) != "ok";
  };
  table.Record(Call(100, 0, 0, 0, 1), SequenceEffect::kMoved, 10, PositionEffect::kSame);
  table.Record(Call(100, 0, 0, 0, 2), SequenceEffect::kMoved, 10, PositionEffect::kSame);
  EXPECT_TRUE(stale(1));  // a use
  table.Record(Call(100, 0, 0, 0, 3), SequenceEffect::kMoved, 10, PositionEffect::kSame);
  EXPECT_TRUE(stale(1));
  EXPECT_FALSE(stale(2));
  EXPECT_TRUE(stale(3));
}

TEST(SequenceTable, Forgets) {
  SequenceTable table(2);
  EXPECT_FALSE(table.Forget(1));
  table.Record(Call(100, 0, 0), SequenceEffect::kMoved, 10, PositionEffect::kSame);
  EXPECT_TRUE(table.Forget(1));
  EXPECT_FALSE(table.Forget(1));
  EXPECT_EQ(Verdict(table, Call(100, 0, 0)), "ok");
}

// A list of positions holds for all heads until they keep different rows, and again when all rows
// are renumbered.
TEST(SequenceTable, RemembersWhetherPositionsDiffer) {
  SequenceTable table(10);
  EXPECT_TRUE(table.CheckPositions(Call(100, 0, 0)).ok());  // nothing known
  table.Record(Call(100, 0, 0), SequenceEffect::kMoved, 40, PositionEffect::kDiffer);
  EXPECT_EQ(ReasonOf(table.CheckPositions(Call(40, 60, 1))), "positions_unknown");
  table.Record(Call(40, 60, 1), SequenceEffect::kMoved, 30, PositionEffect::kSame);
  EXPECT_EQ(ReasonOf(table.CheckPositions(Call(30, 70, 2))), "positions_unknown");
  EXPECT_TRUE(table.CheckPositions(Call(30, 70, 2, 5)).ok());  // a new start
  table.Record(Call(30, 70, 2), SequenceEffect::kMoved, 20, PositionEffect::kRenumbered);
  EXPECT_TRUE(table.CheckPositions(Call(20, 80, 3)).ok());
  // Of an answer that the worker may not have followed, it depends on which rows it goes on with.
  table.Record(Call(20, 80, 3), SequenceEffect::kAdvice, 10, PositionEffect::kDiffer);
  EXPECT_TRUE(table.CheckPositions(Call(20, 80, 3)).ok());
  EXPECT_EQ(ReasonOf(table.CheckPositions(Call(10, 90, 3))), "positions_unknown");
}

}  // namespace
}  // namespace kvtriage
