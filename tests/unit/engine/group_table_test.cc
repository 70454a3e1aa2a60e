// The books of groups alone, with times that the test tells.
#include "service/engine/group_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class FakePart final : public GroupPart {
 public:
  FakePart(uint64_t term, uint64_t bytes) : terms_{{"rows", term}}, bytes_(bytes) {}
  const GroupTerms& terms() const override { return terms_; }
  uint64_t bytes() const override { return bytes_; }
  RankSums Sums() override { return {}; }
  absl::Status Decide() override { return absl::OkStatus(); }
  void Begin() override {}
  absl::Status Apply() override { return absl::OkStatus(); }

 private:
  const GroupTerms terms_;
  const uint64_t bytes_;
};

class GroupTableTest : public testing::Test {
 protected:
  static std::unique_ptr<Job> Rank(uint32_t rank, uint32_t size = 2, uint8_t key = 1) {
    auto job = std::make_unique<Job>();
    auto& spec = job->spec.emplace<CompressSpec>();
    spec.group = GroupSpec{.key = {key}, .rank = rank, .size = size};
    job->key.session_id = 100 + rank;
    job->key.key = {key, static_cast<uint8_t>(rank)};
    return job;
  }
  static GroupId Id(uint8_t key = 1, uint32_t uid = 7) { return {uid, {key}}; }

  std::string Join(const Job& job, const GroupId& id, int64_t deadline_ms = 1000) {
    return ReasonOf(table_.Join(id, job, start_ + absl::Milliseconds(deadline_ms)));
  }
  std::string Park(std::unique_ptr<Job>& job, const GroupId& id, uint64_t term = 1,
                   uint64_t bytes = 10) {
    job->part = std::make_unique<FakePart>(term, bytes);
    return ReasonOf(table_.Park(id, job));
  }
  std::vector<GroupTable::Due> DueAt(int64_t ms) {
    return table_.FindDue(start_ + absl::Milliseconds(ms), [](const Job&) { return false; });
  }

  EngineLimits limits_{.groups = 2, .group_bytes = 25};
  GroupTable table_{limits_};
  const absl::Time start_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(GroupTableTest, IsReadyWhenAllRanksWaitInRankOrder) {
  auto one = Rank(1), zero = Rank(0);
  EXPECT_EQ(Join(*one, Id()), "ok");
  EXPECT_EQ(Join(*zero, Id()), "ok");
  EXPECT_EQ(Park(one, Id()), "ok");
  EXPECT_FALSE(table_.HasReady(kHostMemory));
  EXPECT_EQ(table_.waiting(), 1u);
  EXPECT_EQ(Park(zero, Id()), "ok");
  ASSERT_TRUE(table_.HasReady(kHostMemory));
  const auto jobs = table_.TakeReady(kHostMemory);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]->key.session_id, 100u);
  EXPECT_EQ(jobs[1]->key.session_id, 101u);
  EXPECT_EQ(table_.waiting(), 0u);
  EXPECT_FALSE(table_.HasReady(kHostMemory));
}

TEST_F(GroupTableTest, ItsTimeIsUpTheMarginBeforeTheEarliestDeadline) {
  auto zero = Rank(0, 3), one = Rank(1, 3);
  EXPECT_EQ(table_.NextDue(), std::nullopt);
  Join(*zero, Id(), 1000);
  EXPECT_EQ(table_.NextDue(), start_ + absl::Milliseconds(950));
  Join(*one, Id(), 400);  // also of a rank that is not scored yet
  EXPECT_EQ(table_.NextDue(), start_ + absl::Milliseconds(350));
  EXPECT_THAT(DueAt(349), IsEmpty());
  ASSERT_THAT(DueAt(350), SizeIs(1));
  EXPECT_FALSE(DueAt(350)[0].unwanted.has_value());
}

TEST_F(GroupTableTest, AWholeGroupIsTheLanes) {
  auto zero = Rank(0, 1);
  Join(*zero, Id());
  EXPECT_EQ(Park(zero, Id()), "ok");
  EXPECT_THAT(DueAt(5000), IsEmpty());
  EXPECT_EQ(table_.NextDue(), std::nullopt);
}

TEST_F(GroupTableTest, FindsTheRankThatNobodyWaitsForAnyMore) {
  auto zero = Rank(0, 3), one = Rank(1, 3);
  Join(*zero, Id()), Join(*one, Id());
  Park(zero, Id()), Park(one, Id());
  const auto due = table_.FindDue(start_, [](const Job& job) { return job.key.session_id == 101; });
  ASSERT_THAT(due, SizeIs(1));
  EXPECT_EQ(due[0].unwanted->session_id, 101u);
}

TEST_F(GroupTableTest, RefusesWhoeverDoesNotFit) {
  auto zero = Rank(0);
  EXPECT_EQ(Join(*zero, Id()), "ok");
  EXPECT_EQ(Join(*Rank(0), Id()), "group_mismatch");  // twice
  EXPECT_EQ(Join(*Rank(1, 3), Id()), "group_mismatch");
  auto blend = Rank(1);
  blend->kind = CallKind::kSelectRecompute;
  EXPECT_EQ(Join(*blend, Id()), "group_mismatch");
  auto one = Rank(1);
  EXPECT_EQ(Join(*one, Id()), "ok");
  EXPECT_EQ(Park(zero, Id(), 1), "ok");
  EXPECT_EQ(Park(one, Id(), 2), "group_mismatch");
  EXPECT_NE(one, nullptr);  // left with its owner
}

TEST_F(GroupTableTest, StrangersDoNotMeet) {
  auto zero = Rank(0), theirs = Rank(0), one = Rank(1);
  EXPECT_EQ(Join(*zero, Id(1, 7)), "ok");
  EXPECT_EQ(Join(*theirs, Id(1, 8)), "ok");
  Park(theirs, Id(1, 8)), Park(zero, Id(1, 7));
  EXPECT_FALSE(table_.HasReady(kHostMemory));
  EXPECT_THAT(table_.End(Id(1, 8)), SizeIs(1));
  EXPECT_EQ(Join(*one, Id(1, 7)), "ok");
  EXPECT_EQ(Park(one, Id(1, 7)), "ok");
  EXPECT_TRUE(table_.HasReady(kHostMemory));
}

TEST_F(GroupTableTest, WhatIsOverStaysOver) {
  auto zero = Rank(0);
  Join(*zero, Id());
  EXPECT_TRUE(table_.Expects(Id(), *zero));
  const auto members = table_.End(Id());
  ASSERT_THAT(members, SizeIs(1));
  EXPECT_EQ(members[0].job, nullptr);  // on the lane, or in its queue
  EXPECT_FALSE(table_.Expects(Id(), *zero));
  EXPECT_EQ(Join(*Rank(1), Id()), "group_mismatch");
  EXPECT_THAT(table_.End(Id()), IsEmpty());
}

TEST_F(GroupTableTest, NumberAndBytesAreCapped) {
  auto a = Rank(0, 2, 1), b = Rank(0, 2, 2), c = Rank(0, 2, 3);
  EXPECT_EQ(Join(*a, Id(1)), "ok");
  EXPECT_EQ(Join(*b, Id(2)), "ok");
  EXPECT_EQ(Join(*c, Id(3)), "quota_state");
  EXPECT_EQ(Park(a, Id(1), 1, 20), "ok");
  EXPECT_EQ(Park(b, Id(2), 1, 6), "quota_state");
  EXPECT_EQ(Park(b, Id(2), 1, 5), "ok");
  table_.End(Id(1));
  EXPECT_EQ(Join(*c, Id(3)), "ok");
  EXPECT_EQ(Park(c, Id(3), 1, 20), "ok");
}

TEST_F(GroupTableTest, KnowsWhoWaits) {
  auto zero = Rank(0), one = Rank(1);
  Join(*zero, Id()), Join(*one, Id());
  EXPECT_THAT(table_.Incomplete(), IsEmpty());
  Park(zero, Id());
  const auto any = [](const Job&) { return true; };
  EXPECT_THAT(table_.Waiting(100, any), SizeIs(1));
  EXPECT_THAT(table_.Waiting(101, any), IsEmpty());  // not scored yet
  EXPECT_THAT(table_.Waiting(100, [](const Job&) { return false; }), IsEmpty());
  auto lone = Rank(0, 2, 2);
  Join(*lone, Id(2));
  EXPECT_EQ(table_.Incomplete(), std::vector<GroupId>{Id(2)});
}

}  // namespace
}  // namespace kvtriage
