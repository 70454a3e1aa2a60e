// Decode-time eviction through the C++ client and a real service: what comes back, what is true of
// the cache and of the running scores when either side is cut off or killed.
#include <signal.h>

#include <cctype>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvtriage/session.h"
#include "tests/integration/stamped_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage::client {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";
constexpr uint32_t kRows = 100, kKept = 40;

std::unique_ptr<Session> ConnectTo(const ServiceProcess& service) {
  ConnectOptions options;
  options.endpoint = service.endpoint();
  auto session = Session::Connect(options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

std::string ReasonOf(const absl::Status& status) {
  const auto details = GetErrorDetails(status);
  return details.has_value() ? details->reason : status.ok() ? "ok" : status.ToString();
}

// Sums of attention; one newest row is protected.
Policy SumsPolicy(uint32_t kept) {
  Policy policy = NamedPolicyTokens("h2o", kept);
  policy.parts.protect = Protect{0, 1, 0};
  return policy;
}

// A stamped worker whose queries are all 0: every row looks at all rows alike, so that sums favour
// the oldest ones by a rule that fits on a napkin.
class DecodingWorker {
 public:
  DecodingWorker(Session& session, uint32_t sequences, uint32_t rows, uint32_t capacity)
      : worker_(sequences, capacity), memory_(*HostMemory::Create(kBytes)) {
    worker_.Lend(session);
    const auto lent = session.Register({{memory_.Lend()}, {}});
    EXPECT_TRUE(lent.ok()) << lent.status();
    if (lent.ok()) region_ = lent->regions[0];
    for (uint32_t i = 0; i < sequences; ++i) {
      sequences_.push_back(worker_.Of(i));
      sequences_[i].logical_len = sequences_[i].physical_len = rows;
    }
  }

  StampedWorker& stamped() { return worker_; }
  Sequence& sequence(uint32_t i) { return sequences_[i]; }
  void Append(uint32_t i, uint32_t count) {
    for (uint32_t n = 0; n < count; ++n) worker_.Append(sequences_[i], i);
  }

  ObserveStep Step(uint32_t i, uint32_t rows, uint32_t drafts = 0, bool accumulate_only = false) {
    ObserveStep step;
    step.sequence = sequences_[i];
    step.sequence.rows_count = rows;
    step.draft_rows = drafts;
    step.accumulate_only = accumulate_only;
    return step;
  }
  ObserveRequest Request(std::vector<ObserveStep> steps, std::optional<Policy> policy = {}) const {
    ObserveRequest request;
    request.cache = worker_.cache();
    request.policy = std::move(policy);
    request.steps = std::move(steps);
    QueryWindow window;
    window.q = DenseTensor(region_, 0, DType::kF32, StampedWorker::kLayers, kQueries,
                           StampedWorker::kHeads, StampedWorker::kElems);
    window.stage = QueryStage::kAfterRope;
    request.inputs.source = window;
    request.inputs.softmax_scale = 0.5;
    request.act = InPlace{};
    return request;
  }
  // Lengths and table as an answer says.
  void Follow(uint32_t i, const SequenceFate& fate) {
    sequences_[i].physical_len = fate.kept;
    sequences_[i].kv_revision = fate.kv_revision;
  }

 private:
  static constexpr uint32_t kQueries = 256;
  static constexpr uint64_t kBytes = uint64_t{StampedWorker::kLayers} * kQueries *
                                     StampedWorker::kHeads * StampedWorker::kElems * 4;

  StampedWorker worker_;
  HostMemory memory_;  // zeros
  Region region_;
  std::vector<Sequence> sequences_;
};

std::vector<int32_t> OldestAndNewest(int32_t oldest, int32_t newest) {
  std::vector<int32_t> tokens(static_cast<size_t>(oldest));
  std::iota(tokens.begin(), tokens.end(), 0);
  tokens.push_back(newest);
  return tokens;
}

class ClientObserve : public testing::Test {
 protected:
  void StartService(const std::vector<std::string>& flags = {}) {
    ASSERT_TRUE(service_.Start(flags));
    session_ = ConnectTo(service_);
    ASSERT_NE(session_, nullptr);
  }

  ServiceProcess service_{kServiceProgram};
  std::unique_ptr<Session> session_;
};

TEST_F(ClientObserve, UniformAttentionKeepsTheOldestRowsAndTheNewest) {
  StartService();
  DecodingWorker worker(*session_, 2, 0, 400);
  bool first = true;
  for (uint32_t step = 0; step < 400; step += 25) {
    worker.Append(0, 25);
    const ObserveOutcome outcome = session_->Observe(
        worker.Request({worker.Step(0, 25)}, first ? std::optional(SumsPolicy(64)) : std::nullopt));
    ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
    ASSERT_TRUE(outcome.result.has_value());
    EXPECT_EQ(outcome.result->steps[0].started, first);
    EXPECT_EQ(outcome.result->steps[0].evicted.has_value(), step >= 50);
    EXPECT_EQ(outcome.result->policy.scorer->kind, Scorer::Kind::kAttention);
    EXPECT_TRUE(outcome.result->policy.window->all);
    EXPECT_EQ(outcome.fates[0].kept, std::min(64u, step + 25));
    worker.Follow(0, outcome.fates[0]);
    first = false;
  }
  worker.stamped().ExpectTokens(worker.sequence(0), 0, OldestAndNewest(63, 399));
  EXPECT_EQ(worker.sequence(0).kv_revision, 14u);
  // Sums of 64 rows in two layers of two heads, and nothing else, are kept.
  const double bytes = service_.Metric("kvtriage_running_score_bytes").value_or(-1);
  EXPECT_GE(bytes, 64 * 4 * 4);
  EXPECT_LT(bytes, 64 * 4 * 4 + 1024);
  EXPECT_EQ(service_.Metric("kvtriage_running_score_limit_bytes"), 512 << 20);
  EXPECT_EQ(service_.Metric("kvtriage_decisions_total", "outcome=\"applied\",policy=\"other\""),
            14);
  EXPECT_EQ(service_.Metric("kvtriage_rpc_requests_total", "method=\"Observe\",result=\"ok\""), 16);
  ASSERT_TRUE(session_->ReleaseSequences({1}).ok());
  EXPECT_TRUE(WaitUntil([&] { return service_.Metric("kvtriage_running_score_bytes") == 0; }));
}

TEST_F(ClientObserve, DraftsAreTakenBackOrAccepted) {
  StartService();
  DecodingWorker worker(*session_, 1, 0, 200);
  worker.Append(0, 50);
  ASSERT_EQ(session_->Observe(worker.Request({worker.Step(0, 50, 4)}, SumsPolicy(40))).outcome,
            Outcome::kApplied);
  const auto rewound = session_->Rewind({1, 0, 3});
  ASSERT_TRUE(rewound.ok()) << rewound.status();
  EXPECT_EQ(rewound->draft_rows, 1u);
  EXPECT_EQ(rewound->physical_len, 47u);
  EXPECT_EQ(ReasonOf(session_->Rewind({1, 0, 2}).status()), "rewind_too_far");
  EXPECT_EQ(ReasonOf(session_->Rewind({9, 0, 1}).status()), "sequence_unknown");
  EXPECT_EQ(session_->Rewind({9, 0, 1}).status().code(), absl::StatusCode::kNotFound);
  CompressRequest compress = worker.stamped().Request({worker.sequence(0)}, 20);
  compress.sequences[0].logical_len = compress.sequences[0].physical_len = 47;
  EXPECT_EQ(ReasonOf(session_->Compress(compress).status), "draft_pending");
  // Three rejected tokens are written over.
  worker.sequence(0).logical_len = worker.sequence(0).physical_len = 47;
  worker.Append(0, 2);
  ObserveRequest request = worker.Request({worker.Step(0, 2)});
  request.kept_format = KeptFormat::kBitmap;
  const ObserveOutcome outcome = session_->Observe(request);
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  ASSERT_TRUE(outcome.result->steps[0].evicted.has_value());
  EXPECT_EQ(outcome.result->steps[0].evicted->kept_sets.At(1, 1), OldestAndNewest(39, 48));
  worker.stamped().ExpectTokens(worker.sequence(0), 0, OldestAndNewest(39, 48));
}

TEST_F(ClientObserve, AnOutgrownBudgetIsRefusedBySpecificStatus) {
  StartService({"--state.score_bytes=4KiB"});
  DecodingWorker worker(*session_, 1, 0, 400);
  worker.Append(0, 100);
  ASSERT_EQ(
      session_->Observe(worker.Request({worker.Step(0, 100, 0, true)}, SumsPolicy(300))).outcome,
      Outcome::kApplied);
  EXPECT_EQ(session_->GetServerInfo()->limits.max_state_bytes, 4096u);
  worker.Append(0, 150);
  const ObserveOutcome refused = session_->Observe(worker.Request({worker.Step(0, 150, 0, true)}));
  EXPECT_EQ(refused.outcome, Outcome::kUnchanged);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status), "quota_state");
  EXPECT_EQ(refused.fates[0].outcome, Outcome::kUnchanged);
  EXPECT_LE(service_.Metric("kvtriage_running_score_bytes").value_or(1e9), 4096);
  EXPECT_EQ(service_.Metric("kvtriage_rejections_total", "reason=\"quota_state\""), 1);
}

// A call cut off by its deadline ends known: what counts, counts, and the rest can be brought
// again.
TEST_F(ClientObserve, ACutOffCallIsSettled) {
  StartService({"--fault=lane.after_score:delay=1500"});
  DecodingWorker worker(*session_, 1, 0, 200);
  worker.Append(0, 30);
  ObserveOutcome outcome =
      session_->Observe(worker.Request({worker.Step(0, 30)}, SumsPolicy(40)), {.deadline_ms = 300});
  EXPECT_EQ(outcome.quarantine, 0u);
  if (outcome.outcome == Outcome::kUnchanged) {
    outcome = session_->Observe(worker.Request({worker.Step(0, 30)}, SumsPolicy(40)));
  }
  EXPECT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  worker.Append(0, 20);
  const ObserveOutcome next = session_->Observe(worker.Request({worker.Step(0, 20)}));
  ASSERT_EQ(next.outcome, Outcome::kApplied) << next.status;
  EXPECT_FALSE(next.result->steps[0].started);
  worker.stamped().ExpectTokens(worker.sequence(0), 0, OldestAndNewest(39, 49));
}

TEST_F(ClientObserve, KeepStateGoesOnThroughTheClient) {
  StartService();
  DecodingWorker worker(*session_, 1, 0, 200);
  worker.Append(0, 100);
  CompressRequest compress = worker.stamped().Request({worker.Step(0, 100).sequence}, 40);
  compress.policy = SumsPolicy(40);
  compress.inputs = worker.Request({}).inputs;
  compress.keep_state = true;
  const CompressOutcome compressed = session_->Compress(compress);
  ASSERT_EQ(compressed.outcome, Outcome::kApplied) << compressed.status;
  worker.Follow(0, compressed.fates[0]);
  worker.Append(0, 8);
  const ObserveOutcome outcome =
      session_->Observe(worker.Request({worker.Step(0, 8)}, SumsPolicy(40)));
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  EXPECT_FALSE(outcome.result->steps[0].started);
  worker.stamped().ExpectTokens(worker.sequence(0), 0, OldestAndNewest(39, 107));
}

// ---- the service is killed in every phase
// --------------------------------------------------------

struct KillPoint {
  const char* fault;
  Outcome fates[3];
};
void PrintTo(const KillPoint& point, std::ostream* out) { *out << point.fault; }

constexpr Outcome kU = Outcome::kUnchanged, kA = Outcome::kApplied, kD = Outcome::kDamaged;
// As for a Compress of the three sequences that are cut back; the fourth only counts rows.
constexpr KillPoint kKillPoints[] = {
    {"lane.job_start:kill", {kU, kU, kU}},      {"plan.after_pins:kill", {kU, kU, kU}},
    {"plan.after_checks:kill:2", {kU, kU, kU}}, {"lane.after_score:kill", {kU, kU, kU}},
    {"lane.after_select:kill", {kU, kU, kU}},   {"ledger.after_free:kill", {kU, kU, kU}},
    {"ledger.after_open:kill", {kU, kU, kU}},   {"ledger.after_counts:kill", {kU, kU, kU}},
    {"ledger.after_moving:kill", {kD, kU, kU}}, {"move.mid_rows:kill", {kD, kU, kU}},
    {"ledger.after_done:kill", {kD, kU, kU}},   {"ledger.after_done:kill:2", {kA, kU, kU}},
    {"move.between_groups:kill", {kA, kU, kU}}, {"move.mid_rows:kill:3", {kA, kA, kD}},
    {"ledger.after_done:kill:6", {kA, kA, kA}}, {"ledger.after_closed:kill", {kA, kA, kA}},
    {"result.before_store:kill", {kA, kA, kA}}, {"result.after_store:kill", {kA, kA, kA}},
    {"rpc.before_finish:kill:3", {kA, kA, kA}},  // the first two are the registrations
};

class ObserveKilled : public testing::TestWithParam<KillPoint> {};

TEST_P(ObserveKilled, EverySequencesFateIsTrue) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({std::string("--fault=") + GetParam().fault}));
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  DecodingWorker worker(*session, 4, kRows, kRows);
  const ObserveOutcome outcome =
      session->Observe(worker.Request({worker.Step(0, kRows), worker.Step(3, 10, 0, true),
                                       worker.Step(1, kRows), worker.Step(2, kRows)},
                                      SumsPolicy(kKept)));
  EXPECT_EQ(service.process().WaitExit(), 128 + SIGKILL);
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_FALSE(outcome.result.has_value());
  EXPECT_EQ(outcome.quarantine, 0u);  // the process is gone: nothing writes any more
  ASSERT_EQ(outcome.fates.size(), 4u);
  EXPECT_EQ(outcome.fates[1].outcome, kU);
  worker.stamped().ExpectUntouched(3);
  bool damaged = false, applied = false;
  for (const uint32_t i : {0u, 1u, 2u}) {
    const SequenceFate& fate = outcome.fates[i == 0 ? 0 : i + 1];
    EXPECT_EQ(fate.sequence_id, i + 1);
    EXPECT_EQ(OutcomeName(fate.outcome), OutcomeName(GetParam().fates[i])) << "sequence " << i;
    if (fate.outcome == kU) worker.stamped().ExpectUntouched(i);
    if (fate.outcome == kA) {
      EXPECT_EQ(fate.kept, kKept);
      worker.stamped().ExpectTokens(worker.sequence(i), i, OldestAndNewest(kKept - 1, kRows - 1));
    }
    damaged = damaged || fate.outcome == kD;
    applied = applied || fate.outcome == kA;
  }
  EXPECT_EQ(outcome.outcome, damaged ? kD : applied ? kA : kU);
}

std::string NameOf(const testing::TestParamInfo<KillPoint>& info) {
  std::string name = info.param.fault;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Phases, ObserveKilled, testing::ValuesIn(kKillPoints), NameOf);

// Running scores live and die with the service: after a restart a sequence begins anew, and says
// so.
TEST(ObserveRestarted, ScoresBeginAnew) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start());
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  DecodingWorker worker(*session, 1, 0, 100);
  worker.Append(0, 20);
  ASSERT_EQ(session->Observe(worker.Request({worker.Step(0, 20)}, SumsPolicy(40))).outcome, kA);
  service.process().Signal(SIGKILL);
  ASSERT_TRUE(service.process().WaitExit().has_value());
  ASSERT_TRUE(WaitUntil([&] { return !session->alive(); }, 2000));
  EXPECT_EQ(session->Observe(worker.Request({worker.Step(0, 0)})).outcome, Outcome::kUnavailable);
  EXPECT_EQ(session->Rewind({1, 0, 1}).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(service.Start());
  ASSERT_TRUE(session->WaitAlive(2000)) << session->state().last_error;
  worker.Append(0, 2);
  EXPECT_EQ(ReasonOf(session->Observe(worker.Request({worker.Step(0, 2)})).status),
            "field_missing");
  const ObserveOutcome outcome =
      session->Observe(worker.Request({worker.Step(0, 2)}, SumsPolicy(40)));
  ASSERT_EQ(outcome.outcome, kA) << outcome.status;
  EXPECT_TRUE(outcome.result->steps[0].started);
}

}  // namespace
}  // namespace kvtriage::client
