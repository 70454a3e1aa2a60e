// CacheBlend between two processes: a real layer re-rotated, its rows chosen and fused over the
// sockets; the service killed in every phase of a Rerotate and of a Fuse; what each mistake gets.
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvtriage/session.h"
#include "tests/integration/blend_worker.h"
#include "tests/integration/stamped_worker.h"
#include "tests/support/service_process.h"

namespace kvtriage::client {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

std::unique_ptr<Session> ConnectTo(const ServiceProcess& service) {
  ConnectOptions options;
  options.endpoint = service.endpoint();
  auto session = Session::Connect(options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

std::string ReasonOf(const absl::Status& status) {
  const auto details = GetErrorDetails(status);
  return details.has_value() ? details->reason : "none";
}
std::string FieldOf(const absl::Status& status) {
  const auto details = GetErrorDetails(status);
  return details.has_value() ? details->field : "";
}

class ClientBlend : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(service_.Start());
    session_ = ConnectTo(service_);
    ASSERT_NE(session_, nullptr);
  }
  RecomputeResult Select(const BlendWorker& worker, DivergenceMetric metric, double ratio) {
    const bool values = metric != DivergenceMetric::kKL2;
    RecomputeRequest request;
    request.fresh = DenseRows{worker.Fresh(values)};
    request.cached = PagedRows{worker.cache(), 0, {0}, 0, values};
    request.rows = BlendWorker::kRows;
    request.suffix = BlendWorker::kRows - BlendWorker::kReused;
    request.metric = metric;
    request.ratio = ratio;
    const auto result = session_->SelectRecompute(request);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : RecomputeResult();
  }

  ServiceProcess service_{kServiceProgram};
  std::unique_ptr<Session> session_;
};

TEST_F(ClientBlend, ARealLayerIsRerotatedChosenAndFused) {
  BlendWorker worker(1);
  worker.Lend(*session_);
  EXPECT_NEAR(worker.KeyDifference(), 0.7151, 5e-5);
  const RowsOutcome rotated = session_->Rerotate(worker.Rerotation());
  ASSERT_EQ(rotated.outcome, Outcome::kApplied) << rotated.status;
  EXPECT_NEAR(worker.KeyDifference(), 0.0547, 5e-5);
  EXPECT_EQ(rotated.kv_revision, 1u);

  // What 5 and 15 % of the rows carry, by V and by K (float64, from the dump).
  EXPECT_NEAR(Select(worker, DivergenceMetric::kVL2, 0.05).divergence_share, 0.7233, 1e-3);
  EXPECT_NEAR(Select(worker, DivergenceMetric::kKL2, 0.05).divergence_share, 0.6043, 1e-3);
  EXPECT_NEAR(Select(worker, DivergenceMetric::kKL2, 0.15).divergence_share, 0.8235, 1e-3);
  const RecomputeResult chosen = Select(worker, DivergenceMetric::kVL2, 0.15);
  EXPECT_NEAR(chosen.divergence_share, 0.8531, 1e-3);
  EXPECT_EQ(chosen.hkvd, 121u);
  EXPECT_EQ(chosen.must, 19u);

  const std::vector<std::byte> before = worker.CacheBytes();
  FuseRequest fuse = worker.FuseOf(chosen.rows);
  fuse.sequence.kv_revision = rotated.kv_revision;
  const RowsOutcome fused = session_->Fuse(fuse);
  ASSERT_EQ(fused.outcome, Outcome::kApplied) << fused.status;
  EXPECT_EQ(fused.rows, chosen.rows.size());
  EXPECT_EQ(fused.kv_revision, 2u);
  const std::vector<std::byte> after = worker.CacheBytes();
  for (const bool values : {false, true}) {
    for (uint32_t h = 0; h < BlendWorker::kHeads; ++h) {
      for (int32_t row = 0; row < static_cast<int32_t>(BlendWorker::kRows); ++row) {
        if (std::binary_search(chosen.rows.begin(), chosen.rows.end(), row)) {
          ASSERT_TRUE(worker.Row(false, values, h, row) == worker.Row(true, values, h, row));
          continue;
        }
        const uint64_t at = (values ? BlendWorker::kPlane : 0) +
                            (uint64_t{h} * BlendWorker::kRows + row) * BlendWorker::kRowBytes;
        ASSERT_TRUE(std::equal(before.begin() + at, before.begin() + at + BlendWorker::kRowBytes,
                               after.begin() + at));
      }
    }
  }
}

TEST_F(ClientBlend, GradualFilteringAndAGather) {
  BlendWorker worker(10);
  worker.Lend(*session_);
  const RecomputeResult first = Select(worker, DivergenceMetric::kVL2, 0.3);
  RecomputeRequest second;
  second.fresh = DenseRows{worker.Fresh(true)};
  second.cached = PagedRows{worker.cache(), 0, {0}};
  second.rows = BlendWorker::kRows;
  second.suffix = 19;
  second.metric = DivergenceMetric::kVRelative;
  second.ratio = 0.1;
  second.previous = PreviousHkvd{first.hkvd_rows(), first.base};
  // The gathered rows are of K, which nothing else reads here.
  second.gather = QueryGather{DenseRows{worker.Fresh(false)}, worker.FuseOf(first.rows).keys};
  const auto result = session_->SelectRecompute(second);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->base, first.base);
  EXPECT_EQ(result->hkvd, 80u);
  const std::vector<int32_t> before = first.hkvd_rows(), after = result->hkvd_rows();
  EXPECT_TRUE(std::includes(before.begin(), before.end(), after.begin(), after.end()));
  second.gather->to.rows = 5;
  EXPECT_EQ(ReasonOf(session_->SelectRecompute(second).status()), "destination_too_small");
  second.gather->to = worker.Fresh(true);
  EXPECT_EQ(ReasonOf(session_->SelectRecompute(second).status()), "view_overlap");
}

TEST_F(ClientBlend, EveryMistakeOfARerotateIsNamed) {
  BlendWorker worker(1);
  worker.Lend(*session_);
  const struct {
    std::function<void(RerotateRequest&)> change;
    const char* reason;
    const char* field;
  } mistakes[] = {
      {[](RerotateRequest& r) { r.sequence.positions.reset(); }, "field_missing",
       "sequence.positions"},
      {[](RerotateRequest& r) {
         r.new_positions = std::vector<int32_t>{1, 2};
       },
       "field_invalid", "new_positions.list"},
      {[](RerotateRequest& r) { r.angles = AngleMode::kUnspecified; }, "enum_unspecified",
       "angles"},
      {[](RerotateRequest& r) { r.first_row = 20; }, "index_out_of_range", "rows"},
      {[](RerotateRequest& r) { r.cache = Cache{77}; }, "memory_unknown", "cache_id"},
      {[](RerotateRequest& r) { r.layers = {1}; }, "index_out_of_range", "layers_le"},
      {[](RerotateRequest& r) { r.sequence.sharing = Sharing::kUnspecified; }, "enum_unspecified",
       "sequence.sharing"},
      {[](RerotateRequest& r) { r.sequence.sharing = Sharing::kUnknown; }, "block_shared",
       "sequence.table"},
      {[](RerotateRequest& r) { r.sequence.table = {1}; }, "block_out_of_range", "sequence.table"},
      {[](RerotateRequest& r) { r.sequence.table.clear(); }, "table_too_short", "sequence.table"},
      {[](RerotateRequest&) {}, "ok", ""},
      {[](RerotateRequest& r) { r.sequence.kv_revision = 5; }, "sequence_stale",
       "sequence.kv_revision"},
  };
  for (const auto& mistake : mistakes) {
    SCOPED_TRACE(std::string(mistake.reason) + " " + mistake.field);
    RerotateRequest request = worker.Rerotation();
    mistake.change(request);
    const std::vector<std::byte> before = worker.CacheBytes();
    const RowsOutcome outcome = session_->Rerotate(request);
    if (std::string(mistake.reason) == "ok") continue;  // makes the record that the next one misses
    EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
    EXPECT_EQ(ReasonOf(outcome.status), mistake.reason) << outcome.status;
    EXPECT_EQ(FieldOf(outcome.status), mistake.field);
    EXPECT_TRUE(worker.CacheBytes() == before);
  }
}

TEST_F(ClientBlend, EveryMistakeOfAFuseIsNamed) {
  BlendWorker worker(1);
  worker.Lend(*session_);
  const struct {
    std::function<void(FuseRequest&)> change;
    const char* reason;
    const char* field;
  } mistakes[] = {
      {[](FuseRequest& r) {
         r.rows = {{9, 9}};
       },
       "index_invalid", "rows_le"},
      {[](FuseRequest& r) {
         r.rows = {{9, 827}};
       },
       "index_out_of_range", "rows_le"},
      {[](FuseRequest& r) { r.rows = {{9}}; }, "field_invalid", "keys.rows"},
      {[](FuseRequest& r) { r.rows.reset(); }, "field_invalid", "keys.rows"},
      {[](FuseRequest& r) { r.keys = {}; }, "field_missing", "keys"},
      {[](FuseRequest& r) { r.values = {}; }, "field_missing", "values"},
      {[](FuseRequest& r) { r.values.dtype = DType::kBF16; }, "geometry_invalid", "values.dtype"},
      {[](FuseRequest& r) { r.keys.heads = 1; }, "geometry_invalid", "keys.heads"},
      {[](FuseRequest& r) { r.keys.offset = 0; }, "view_overlap", "keys"},
      {[](FuseRequest& r) { r.keys.offset = uint64_t{1} << 40; }, "range_out_of_region", "keys"},
      {[](FuseRequest& r) { r.sequence.sharing = Sharing::kUnknown; }, "block_shared",
       "sequence.table"},
      {[](FuseRequest&) {}, "ok", ""},
      {[](FuseRequest& r) { r.sequence.kv_revision = 9; }, "sequence_stale",
       "sequence.kv_revision"},
  };
  for (const auto& mistake : mistakes) {
    SCOPED_TRACE(std::string(mistake.reason) + " " + mistake.field);
    FuseRequest request = worker.FuseOf({9, 30});
    mistake.change(request);
    const std::vector<std::byte> before = worker.CacheBytes();
    const RowsOutcome outcome = session_->Fuse(request);
    if (std::string(mistake.reason) == "ok") continue;  // makes the record that the next one misses
    EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
    EXPECT_EQ(ReasonOf(outcome.status), mistake.reason) << outcome.status;
    EXPECT_EQ(FieldOf(outcome.status), mistake.field);
    EXPECT_TRUE(worker.CacheBytes() == before);
  }
}

TEST_F(ClientBlend, SpeedsThatDependOnTheLengthAreRefused) {
  StampedWorker worker(1, 20);
  CacheSpec cache = worker.Describe();
  RopeSpec& rope = cache.ropes.emplace_back();
  rope.pairing = RopePairing::kHalf;
  rope.rotary_dim = 8;
  rope.speeds = std::vector<double>{1, 0.1, 0.01};
  const auto lent = session_->Register({{worker.memory().Lend()}, {cache}});
  EXPECT_EQ(ReasonOf(lent.status()), "field_invalid");
  EXPECT_EQ(FieldOf(lent.status()), "caches[0].spec.ropes[0].speeds_f64le");
}

TEST_F(ClientBlend, EvictionRenumbersWhenAsked) {
  BlendWorker worker(1);
  worker.Lend(*session_);
  CompressRequest request;
  request.cache = worker.cache();
  request.sequences = {worker.Whole()};
  request.policy = NamedPolicyTokens("streaming", 100);
  request.act = InPlace{};
  request.renumber = AngleMode::kExact;
  const CompressOutcome outcome = session_->Compress(request);
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  EXPECT_EQ(outcome.result->sequences[0].next_position, 100u);
  request.act = SelectOnly{};
  request.policy = NamedPolicyTokens("streaming", 50);
  EXPECT_EQ(FieldOf(session_->Compress(request).status), "act.renumber");
}

// ---- the service is killed in every phase ----------------------------------------------------

struct KillPoint {
  const char* fault;
  Outcome fate;
};
void PrintTo(const KillPoint& point, std::ostream* out) { *out << point.fault; }

constexpr Outcome kU = Outcome::kUnchanged, kA = Outcome::kApplied, kD = Outcome::kDamaged;
// One layer: one unit.
constexpr KillPoint kKillPoints[] = {
    {"lane.job_start:kill", kU},      {"plan.after_checks:kill", kU},
    {"ledger.after_free:kill", kU},   {"ledger.after_open:kill", kU},
    {"ledger.after_moving:kill", kD}, {"rerotate.mid_rows:kill", kD},
    {"fuse.mid_rows:kill", kD},       {"ledger.after_done:kill", kA},
    {"ledger.after_closed:kill", kA}, {"result.before_store:kill", kA},
    {"result.after_store:kill", kA},
};

class BlendKilled : public testing::TestWithParam<KillPoint> {
 protected:
  bool Of(const char* operation) const {
    const std::string fault = GetParam().fault;
    return !fault.starts_with("rerotate") && !fault.starts_with("fuse")
               ? true
               : fault.starts_with(operation);
  }
};

TEST_P(BlendKilled, ARerotatesFateIsTrue) {
  if (!Of("rerotate")) GTEST_SKIP() << "a point of Fuse";
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({std::string("--fault=") + GetParam().fault}));
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  BlendWorker worker(1);
  worker.Lend(*session);
  const std::vector<std::byte> before = worker.CacheBytes();
  const RowsOutcome outcome = session->Rerotate(worker.Rerotation());
  EXPECT_EQ(service.process().WaitExit(), 128 + SIGKILL);
  EXPECT_EQ(OutcomeName(outcome.outcome), OutcomeName(GetParam().fate));
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.quarantine, 0u);
  if (outcome.outcome == kU) {
    EXPECT_TRUE(worker.CacheBytes() == before);
  }
  if (outcome.outcome == kA) {
    EXPECT_NEAR(worker.KeyDifference(), 0.0547, 5e-5);
    EXPECT_EQ(outcome.kv_revision, 1u);
  }
}

TEST_P(BlendKilled, AFusesFateIsTrueAndTheSameFuseRepairsIt) {
  if (!Of("fuse")) GTEST_SKIP() << "a point of Rerotate";
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({std::string("--fault=") + GetParam().fault}));
  auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  BlendWorker worker(29);
  worker.Lend(*session);
  const std::vector<std::byte> before = worker.CacheBytes();
  const std::vector<int32_t> rows = {0, 5, 100, 826};
  const RowsOutcome outcome = session->Fuse(worker.FuseOf(rows));
  EXPECT_EQ(service.process().WaitExit(), 128 + SIGKILL);
  EXPECT_EQ(OutcomeName(outcome.outcome), OutcomeName(GetParam().fate));
  const auto expect_fused = [&] {
    for (const int32_t row : rows) {
      for (uint32_t h = 0; h < BlendWorker::kHeads; ++h) {
        EXPECT_TRUE(worker.Row(false, false, h, row) == worker.Row(true, false, h, row));
        EXPECT_TRUE(worker.Row(false, true, h, row) == worker.Row(true, true, h, row));
      }
    }
  };
  if (outcome.outcome == kU) {
    EXPECT_TRUE(worker.CacheBytes() == before);
  }
  if (outcome.outcome == kA) expect_fused();
  session.reset();
  ServiceProcess another(kServiceProgram);
  ASSERT_TRUE(another.Start());
  session = ConnectTo(another);
  ASSERT_NE(session, nullptr);
  worker.Lend(*session);
  const RowsOutcome again = session->Fuse(worker.FuseOf(rows));
  ASSERT_EQ(again.outcome, kA) << again.status;
  expect_fused();
}

std::string NameOf(const testing::TestParamInfo<KillPoint>& info) {
  std::string name = info.param.fault;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Phases, BlendKilled, testing::ValuesIn(kKillPoints), NameOf);

// A copy leaves its source alone whenever the service dies.
TEST(BlendCopyKilled, TheSourceIsUntouched) {
  ServiceProcess service(kServiceProgram);
  ASSERT_TRUE(service.Start({"--fault=copy.mid_rows:kill"}));
  const auto session = ConnectTo(service);
  ASSERT_NE(session, nullptr);
  StampedWorker worker(2, 100);
  worker.Lend(*session);
  RerotateRequest request;
  request.cache = worker.cache();
  request.sequence = worker.Of(0);
  request.sequence.destination = worker.Of(1).table;
  request.sequence.positions = uint64_t{0};
  request.rows = 100;
  request.new_positions = uint64_t{7};
  request.angles = AngleMode::kExact;
  request.act = CopyTo{worker.cache()};
  const RowsOutcome outcome = session->Rerotate(request);
  EXPECT_EQ(outcome.outcome, kU);
  worker.ExpectUntouched(0);
}

}  // namespace
}  // namespace kvtriage::client
