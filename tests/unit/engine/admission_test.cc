#include "service/engine/admission.h"

#include <gtest/gtest.h>

#include "service/engine/job_queue.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

constexpr absl::Duration kPlenty = absl::Seconds(30);

std::string Verdict(Admission& admission, const AdmissionState& state,
                    absl::Duration left = kPlenty) {
  return ReasonOf(admission.Check(state, left));
}

TEST(Admission, RefusesInADocumentedOrder) {
  Admission admission({}, 1);
  AdmissionState state{true, true, 4, 256, 0, 0, {}};
  EXPECT_EQ(Verdict(admission, state, absl::ZeroDuration()), "draining");
  state.draining = false;
  EXPECT_EQ(Verdict(admission, state, absl::ZeroDuration()), "device_sick");
  state.sick = false;
  EXPECT_EQ(Verdict(admission, state, absl::ZeroDuration()), "session_busy");
  state.session_jobs = 3;
  EXPECT_EQ(Verdict(admission, state, absl::ZeroDuration()), "queue_full");
  state.queued = 255;
  EXPECT_EQ(Verdict(admission, state, absl::ZeroDuration()), "deadline_unmeetable");
  EXPECT_EQ(Verdict(admission, state), "ok");
}

TEST(Admission, QueueTimeComesFromTheLanesRate) {
  Admission admission({}, 1);
  AdmissionState state{false, false, 0, 1, 1'000'000'000, 0, {}};
  EXPECT_EQ(admission.TimeFor(1'000'000'000), absl::ZeroDuration());  // nothing learnt yet
  EXPECT_EQ(Verdict(admission, state, absl::Milliseconds(1)), "ok");
  admission.Learn(100'000'000, absl::Milliseconds(100));  // 1 GB/s
  EXPECT_NEAR(absl::ToDoubleSeconds(admission.TimeFor(1'000'000'000)), 1, 1e-9);
  EXPECT_EQ(Verdict(admission, state, absl::Milliseconds(900)), "deadline_unmeetable");
  EXPECT_EQ(Verdict(admission, state, absl::Milliseconds(1100)), "ok");
  // What is left of the running job counts too, down to nothing.
  state.running_bytes = 500'000'000;
  EXPECT_EQ(Verdict(admission, state, absl::Milliseconds(1400)), "deadline_unmeetable");
  state.running_since = absl::Milliseconds(450);
  EXPECT_EQ(Verdict(admission, state, absl::Milliseconds(1100)), "ok");
  state.running_since = absl::Seconds(20);
  EXPECT_EQ(Verdict(admission, state, absl::Milliseconds(900)), "deadline_unmeetable");
  // A faster machine is learnt within some jobs; small slow jobs hardly count.
  for (int i = 0; i < 40; ++i) admission.Learn(1'000'000'000, absl::Milliseconds(100));
  admission.Learn(1000, absl::Milliseconds(1));
  EXPECT_NEAR(absl::ToDoubleSeconds(admission.TimeFor(1'000'000'000)), 0.1, 0.01);
}

TEST(Admission, RetryHintsAreSpreadAndBounded) {
  for (const auto& [bytes, base] :
       {std::pair<uint64_t, double>{0, 5}, {100'000'000, 100}, {100'000'000'000, 2000}}) {
    Admission admission({}, 1);
    admission.Learn(1'000'000'000, absl::Seconds(1));
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < 1000; ++i) {
      const absl::Status status = admission.Check({false, false, 4, 0, bytes, 0, {}}, kPlenty);
      const uint32_t hint = GetErrorInfo(status)->retry_after_ms;
      least = std::min(least, hint);
      most = std::max(most, hint);
    }
    EXPECT_NEAR(least, base * 0.5, base * 0.05 + 1);
    EXPECT_NEAR(most, base * 1.5, base * 0.05 + 1);
  }
}

std::unique_ptr<Job> JobOf(uint64_t session, uint64_t id) {
  auto job = std::make_unique<Job>();
  job->key.session_id = session;
  job->id = id;
  job->bytes = id;
  job->sequence_ids = {id * 10, 7};
  return job;
}

std::vector<uint64_t> Ids(const std::vector<std::unique_ptr<Job>>& jobs) {
  std::vector<uint64_t> ids;
  for (const auto& job : jobs) ids.push_back(job->id);
  return ids;
}

bool NothingHeld(const Job&) { return false; }

TEST(JobQueue, RoundRobinOverSessionsInOrderWithinOne) {
  JobQueue queue;
  EXPECT_EQ(queue.Next(kHostMemory, NothingHeld), nullptr);
  for (uint64_t i = 0; i < 5; ++i) queue.Push(JobOf(1, 10 + i));
  queue.Push(JobOf(2, 20));
  queue.Push(JobOf(2, 21));
  EXPECT_EQ(queue.size(), 7u);
  EXPECT_EQ(queue.load(kHostMemory).bytes, 10u + 11 + 12 + 13 + 14 + 20 + 21);
  EXPECT_EQ(queue.Next(kHostMemory, NothingHeld)->id, 10u);
  queue.Push(JobOf(3, 30));
  std::vector<uint64_t> order;
  while (const std::unique_ptr<Job> job = queue.Next(kHostMemory, NothingHeld)) {
    order.push_back(job->id);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{20, 11, 30, 21, 12, 13, 14}));
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.load(kHostMemory).bytes, 0u);
}

TEST(JobQueue, HeldJobsArePassedOverAndWithThemLaterOnesOfTheirSequences) {
  const auto job = [](uint64_t id, std::vector<uint64_t> sequences) {
    std::unique_ptr<Job> made = JobOf(1, id);
    made->sequence_ids = std::move(sequences);
    return made;
  };
  JobQueue queue;
  queue.Push(job(1, {5, 6}));
  queue.Push(job(2, {6, 7}));  // behind the first, of one of its sequences
  queue.Push(job(3, {7}));     // and behind the second
  queue.Push(job(4, {8}));
  const auto held = [](const Job& other) { return Touches(other.sequence_ids, {5}); };
  EXPECT_TRUE(queue.HasNext(kHostMemory, held));
  EXPECT_EQ(queue.Next(kHostMemory, held)->id, 4u);
  EXPECT_FALSE(queue.HasNext(kHostMemory, held));
  EXPECT_EQ(queue.Next(kHostMemory, held), nullptr);
  EXPECT_EQ(queue.size(), 3u);
  queue.Push(JobOf(2, 9));
  EXPECT_EQ(queue.Next(kHostMemory, held)->id, 9u);  // of another session
  EXPECT_EQ(Ids(queue.TakeAll()), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(JobQueue, EveryLaneHasItsOwnJobsAndLoad) {
  JobQueue queue;
  for (uint64_t i = 0; i < 4; ++i) {
    std::unique_ptr<Job> job = JobOf(1, 10 + i);
    job->device = i % 2;  // the host's lane, a device's
    job->sequence_ids = {i};
    queue.Push(std::move(job));
  }
  EXPECT_EQ(queue.load(0).jobs, 2u);
  EXPECT_EQ(queue.load(1).bytes, 11u + 13);
  EXPECT_EQ(queue.load(2).jobs, 0u);
  EXPECT_EQ(queue.Next(1, NothingHeld)->id, 11u);
  EXPECT_EQ(queue.Next(1, NothingHeld)->id, 13u);
  EXPECT_FALSE(queue.HasNext(1, NothingHeld));
  EXPECT_EQ(queue.load(1).bytes, 0u);
  EXPECT_EQ(queue.Next(0, NothingHeld)->id, 10u);
}

// Also across lanes: the calls of a sequence run in the order in which they came.
TEST(JobQueue, AJobOfOneLaneWaitsForAnEarlierOneOfItsSequenceOnAnother) {
  JobQueue queue;
  queue.Push(JobOf(1, 10));
  queue.Push(JobOf(1, 11));
  std::unique_ptr<Job> later = JobOf(1, 12);
  later->device = 1;
  later->sequence_ids = {110};  // of job 11
  queue.Push(std::move(later));
  EXPECT_EQ(queue.Next(1, NothingHeld), nullptr);
  EXPECT_EQ(queue.Next(0, NothingHeld)->id, 10u);
  EXPECT_EQ(queue.Next(0, NothingHeld)->id, 11u);
  EXPECT_EQ(queue.Next(1, NothingHeld)->id, 12u);
}

TEST(JobQueue, TakesOutOfTheMiddle) {
  JobQueue queue;
  for (uint64_t i = 0; i < 4; ++i) queue.Push(JobOf(1, i));
  queue.Push(JobOf(2, 9));
  const auto odd = [](const Job& job) { return job.id % 2 == 1; };
  EXPECT_EQ(Ids(queue.Take(1, odd)), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(Ids(queue.Take(3, odd)), (std::vector<uint64_t>{}));
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.load(kHostMemory).bytes, 0u + 2 + 9);
  const auto all = [](const Job&) { return true; };
  EXPECT_EQ(Ids(queue.Take(1, all)), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(Ids(queue.TakeAll()), (std::vector<uint64_t>{9}));
}

}  // namespace
}  // namespace kvtriage
