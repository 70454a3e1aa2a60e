#include "service/engine/idempotency.h"

#include <gtest/gtest.h>

#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();
using Found = IdempotencyStore::Found;

CallKey KeyOf(uint32_t number, uint64_t session = 1) {
  CallKey key{session, {}};
  for (size_t i = 0; i < 4; ++i) key.key[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

// An answer whose bytes() is about 4 * rows.
CallResult AnswerOf(uint64_t job_id, size_t rows = 0) {
  auto answer = std::make_shared<Answer>();
  answer->job_id = job_id;
  RecomputeAnswer body;
  body.rows.resize(rows);
  answer->body = std::move(body);
  CallResult result;
  result.answer = std::move(answer);
  return result;
}

CallResult ErrorOf(CacheState state) {
  CallResult result;
  result.status = Error(ErrorReason::kMoveFailed, "", "x").State(state);
  return result;
}

class Store : public testing::Test {
 protected:
  explicit Store(const EngineLimits& limits = {}) : store_(limits) {}

  Found Arrive(uint32_t key, CallResult& result, uint64_t body = 1, absl::Time now = kNow,
               CallKind kind = CallKind::kCompress, uint64_t session = 1) {
    IdempotencyStore::Done done = [this](CallResult r) { waited_.push_back(std::move(r)); };
    return store_.Arrive(KeyOf(key, session), kind, {1, body, 0}, now, done, result);
  }
  Found Resolve(uint32_t key, CallResult& result, absl::Time now = kNow,
                CallKind kind = CallKind::kCompress) {
    IdempotencyStore::Done done = [this](CallResult r) { waited_.push_back(std::move(r)); };
    return store_.Resolve(KeyOf(key), kind, now, done, result);
  }
  size_t Finish(uint32_t key, const CallResult& result, absl::Time now = kNow,
                uint64_t session = 1) {
    return store_.Finish(KeyOf(key, session), now, result).size();
  }
  void Do(uint32_t key, const CallResult& result, absl::Time now = kNow, uint64_t session = 1) {
    store_.Begin(KeyOf(key, session), CallKind::kCompress, {1, 1, 0});
    Finish(key, result, now, session);
  }
  // "unseen", "waits", "answer N" or the reason of the refusal.
  std::string State(uint32_t key, absl::Time now = kNow, uint64_t body = 1, uint64_t session = 1) {
    CallResult result;
    switch (Arrive(key, result, body, now, CallKind::kCompress, session)) {
      case Found::kUnseen:
        return "unseen";
      case Found::kWaits:
        return "waits";
      case Found::kAnswered:
        break;
    }
    if (!result.status.ok()) return ReasonOf(result.status);
    EXPECT_TRUE(result.replayed);
    return "answer " + std::to_string(result.answer->job_id);
  }

  IdempotencyStore store_;
  std::vector<CallResult> waited_;
};

TEST_F(Store, StoredAnswerComesBackToTheSameBodyOnly) {
  EXPECT_EQ(State(7), "unseen");
  EXPECT_EQ(State(7), "unseen");  // asking leaves no trace
  Do(7, AnswerOf(42));
  EXPECT_EQ(State(7), "answer 42");
  EXPECT_EQ(State(7, kNow, 2), "key_reused");
  CallResult result;
  EXPECT_EQ(Arrive(7, result, 1, kNow, CallKind::kSelectRecompute), Found::kAnswered);
  EXPECT_EQ(ReasonOf(result.status), "key_reused");
  EXPECT_EQ(State(7, kNow, 1, /*session=*/2), "unseen");
}

TEST_F(Store, RepeatsWaitForTheRunningJob) {
  store_.Begin(KeyOf(7), CallKind::kCompress, {1, 1, 0});
  EXPECT_FALSE(store_.HasRepeats(KeyOf(7)));
  CallResult result;
  EXPECT_EQ(Resolve(7, result), Found::kWaits);
  EXPECT_FALSE(store_.HasRepeats(KeyOf(7)));  // a resolve keeps no job alive
  EXPECT_EQ(State(7), "waits");
  EXPECT_TRUE(store_.HasRepeats(KeyOf(7)));
  EXPECT_EQ(State(7, kNow, 2), "key_reused");
  EXPECT_EQ(Finish(7, AnswerOf(1)), 2u);
  EXPECT_EQ(State(7), "answer 1");
}

TEST_F(Store, UnharmedErrorFreesTheKeyAndHarmIsStored) {
  Do(7, ErrorOf(CacheState::kUnharmed));
  EXPECT_EQ(State(7), "unseen");
  Do(7, ErrorOf(CacheState::kSeeLedger));
  EXPECT_EQ(State(7), "move_failed");
  CallResult result;
  EXPECT_EQ(Resolve(7, result), Found::kAnswered);
  EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kSeeLedger);
}

TEST_F(Store, ResolvedKeysNeverRun) {
  CallResult result;
  EXPECT_EQ(Resolve(1, result), Found::kAnswered);  // unseen
  EXPECT_EQ(ReasonOf(result.status), "key_dead");
  EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(State(1), "key_dead");
  EXPECT_EQ(State(1, kNow, 2), "key_dead");

  store_.Begin(KeyOf(2), CallKind::kCompress, {1, 1, 0});  // waited for, then refused
  EXPECT_EQ(Resolve(2, result), Found::kWaits);
  EXPECT_EQ(Finish(2, ErrorOf(CacheState::kUnharmed)), 1u);
  EXPECT_EQ(State(2), "key_dead");

  store_.Begin(KeyOf(3), CallKind::kCompress, {1, 1, 0});  // taken out of the queue
  EXPECT_EQ(State(3), "waits");
  EXPECT_EQ(store_.MarkDead(KeyOf(3)).size(), 1u);
  EXPECT_EQ(State(3), "key_dead");

  Do(4, AnswerOf(9));  // done
  EXPECT_EQ(Resolve(4, result), Found::kAnswered);
  EXPECT_EQ(result.answer->job_id, 9u);
  EXPECT_EQ(Resolve(4, result, kNow, CallKind::kRegister), Found::kAnswered);
  EXPECT_EQ(ReasonOf(result.status), "key_reused");
}

TEST_F(Store, AnswersExpireByAge) {
  Do(1, AnswerOf(1), kNow);
  EXPECT_EQ(State(1, kNow + absl::Milliseconds(59'999)), "answer 1");
  EXPECT_EQ(State(1, kNow + absl::Seconds(60)), "result_expired");
  EXPECT_EQ(State(1, kNow + absl::Seconds(60), 2), "key_reused");
  CallResult result;
  EXPECT_EQ(Resolve(1, result, kNow + absl::Seconds(61)), Found::kAnswered);
  EXPECT_EQ(ReasonOf(result.status), "result_expired");
  EXPECT_EQ(GetErrorInfo(result.status)->cache_state, CacheState::kSeeLedger);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Store, SixtyFourAnswersPerSession) {
  for (uint32_t i = 0; i < 65; ++i) Do(i, AnswerOf(i));
  EXPECT_EQ(State(0), "result_expired");
  EXPECT_EQ(State(1), "answer 1");
  Do(0, AnswerOf(7), kNow, /*session=*/2);  // another session's limit is its own
  EXPECT_EQ(State(1), "answer 1");
}

TEST_F(Store, SixteenMebibytesPerSession) {
  for (uint32_t i = 0; i < 4; ++i) Do(i, AnswerOf(i, 500'000));  // 4 MB each
  EXPECT_EQ(State(0), "answer 0");
  Do(4, AnswerOf(4, 500'000));
  EXPECT_EQ(State(0), "result_expired");
  EXPECT_EQ(State(1), "answer 1");
  Do(5, AnswerOf(5, 3'000'000));  // alone above the limit
  EXPECT_EQ(State(5), "result_expired");
  EXPECT_EQ(State(4), "result_expired");
  EXPECT_EQ(store_.stored_bytes(), 0u);
}

struct SmallTotal : Store {
  SmallTotal() : Store({.results_bytes = 10'000'000}) {}
};

TEST_F(SmallTotal, OldestOfAllSessionsGoFirst) {
  Do(1, AnswerOf(1, 500'000), kNow, 1);
  Do(1, AnswerOf(2, 500'000), kNow, 2);
  EXPECT_EQ(State(1, kNow, 1, 1), "answer 1");
  Do(1, AnswerOf(3, 500'000), kNow, 3);
  EXPECT_EQ(State(1, kNow, 1, 1), "result_expired");
  EXPECT_EQ(State(1, kNow, 1, 2), "answer 2");
  EXPECT_EQ(State(1, kNow, 1, 3), "answer 3");
}

TEST_F(Store, TheLast4096KeysAreRemembered) {
  for (uint32_t i = 0; i < 4097; ++i) Do(i, AnswerOf(i));
  EXPECT_EQ(State(0), "unseen");
  EXPECT_EQ(State(1), "result_expired");
  EXPECT_EQ(State(4096), "answer 4096");
  // Dead keys push too, and an answer never outlives its key.
  CallResult result;
  for (uint32_t i = 10'000; i < 14'096; ++i) Resolve(i, result);
  EXPECT_EQ(State(4096), "unseen");
  EXPECT_EQ(store_.stored_bytes(), 0u);
}

TEST_F(Store, EndOfASessionGivesBackWhoWaits) {
  Do(1, AnswerOf(1, 1000));
  store_.Begin(KeyOf(2), CallKind::kRegister, {1, 1, 0});
  CallResult result;
  EXPECT_EQ(Arrive(2, result, 1, kNow, CallKind::kRegister), Found::kWaits);
  EXPECT_EQ(store_.DropSession(1).size(), 1u);
  EXPECT_EQ(store_.stored_bytes(), 0u);
  EXPECT_EQ(State(1), "unseen");
  EXPECT_EQ(Finish(2, AnswerOf(2)), 0u);  // too late: nobody to tell, nothing to store
  EXPECT_EQ(State(2), "unseen");
}

}  // namespace
}  // namespace kvtriage
