// The client's streams of layers against a real service: a worker that computes while its layers
// are compressed, and everything that can end a stream.
#include <algorithm>
#include <thread>

#include "gtest/gtest.h"
#include "kvtriage/layer_stream.h"
#include "kvtriage/session.h"
#include "tests/integration/stamped_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage::client {
namespace {

constexpr char kServiceProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";
constexpr uint32_t kRows = 100, kKept = 40;

class ClientLayers : public testing::Test {
 protected:
  void StartService(const std::vector<std::string>& flags = {}) {
    ASSERT_TRUE(service_.Start(flags));
    ConnectOptions options;
    options.endpoint = service_.endpoint();
    auto session = Session::Connect(options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    worker_.Lend(*session_);
  }
  std::unique_ptr<LayerStream> Open(const CompressRequest& request) {
    auto stream = session_->OpenLayers(request);
    EXPECT_TRUE(stream.ok()) << stream.status();
    return stream.ok() ? *std::move(stream) : nullptr;
  }
  CompressRequest Request() const { return worker_.Request({worker_.Of(0), worker_.Of(1)}, kKept); }

  ServiceProcess service_{kServiceProgram};
  StampedWorker worker_{2, kRows};
  std::unique_ptr<Session> session_;
};

TEST_F(ClientLayers, GivesWhatOneCallGives) {
  StartService();
  StampedWorker twin(2, kRows);
  twin.Lend(*session_);
  CompressRequest request = twin.Request({twin.Of(0), twin.Of(1)}, kKept);
  for (Sequence& sequence : request.sequences) sequence.sequence_id += 10;
  request.kept_format = KeptFormat::kBitmap;
  const CompressOutcome whole = session_->Compress(request);
  ASSERT_EQ(whole.outcome, Outcome::kApplied) << whole.status;

  const auto stream = Open(Request());
  ASSERT_NE(stream, nullptr);
  EXPECT_TRUE(stream->policy().budget.has_value());
  // One thread computes and hands over, another takes what is done.
  std::vector<LayerResult> results;
  std::thread reader([&] {
    for (uint32_t i = 0; i < StampedWorker::kLayers; ++i) {
      auto layer = stream->Next();
      ASSERT_TRUE(layer.ok()) << layer.status();
      results.push_back(*std::move(layer));
    }
  });
  for (const uint32_t layer : {1u, 0u}) EXPECT_TRUE(stream->Ready(layer).ok());
  reader.join();
  const CompressOutcome outcome = stream->Close();
  ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].layer, 1u);
  EXPECT_EQ(results[1].layer, 0u);
  for (size_t i = 0; i < 2; ++i) {
    const SequenceResult& ours = outcome.result->sequences[i];
    const SequenceResult& theirs = whole.result->sequences[i];
    EXPECT_EQ(ours.kept, theirs.kept);
    EXPECT_EQ(ours.table, theirs.table);
    EXPECT_EQ(ours.rewritten, theirs.rewritten);
    EXPECT_EQ(ours.kept_sets.lists, theirs.kept_sets.lists);
    EXPECT_EQ(ours.kv_revision, theirs.kv_revision);
    EXPECT_EQ(outcome.fates[i].table, ours.table);
    for (const LayerResult& layer : results) {
      const SequenceResult& part = layer.result.sequences[i];
      EXPECT_EQ(part.kv_revision, theirs.kv_revision);
      for (uint32_t head = 0; head < StampedWorker::kHeads; ++head) {
        EXPECT_EQ(part.kept_sets.At(0, head), theirs.kept_sets.At(layer.layer, head));
      }
    }
    const auto kept = StampedWorker::StreamingRows(kRows, kKept);
    worker_.ExpectTokens(worker_.Of(static_cast<uint32_t>(i)), static_cast<uint32_t>(i), kept);
  }
  EXPECT_EQ(service_.Metric("kvtriage_rpc_requests_total", "CompressLayers"), 1);
  EXPECT_EQ(service_.Metric("kvtriage_decisions_total", "applied"), 4);  // all layers together
}

TEST_F(ClientLayers, LayersAnswerInTheFormatAskedFor) {
  StartService();
  for (const auto format : {KeptFormat::kBitmap, KeptFormat::kCounts}) {
    StampedWorker worker(1, kRows);
    worker.Lend(*session_);
    CompressRequest request = worker.Request({worker.Of(0)}, kKept);
    request.kept_format = format;
    request.sequences[0].sequence_id = 20 + static_cast<uint64_t>(format);
    const auto stream = Open(request);
    ASSERT_NE(stream, nullptr);
    const auto kept = StampedWorker::StreamingRows(kRows, kKept);
    for (const uint32_t layer : {1u, 0u}) {
      EXPECT_TRUE(stream->Ready(layer).ok());
      const auto done = stream->Next();
      ASSERT_TRUE(done.ok()) << done.status();
      const KeptSets& sets = done->result.sequences[0].kept_sets;
      EXPECT_EQ(sets.CountAt(0, 1), kKept);
      if (format == KeptFormat::kBitmap) {
        EXPECT_EQ(sets.At(0, 1), kept);
      }
    }
    const CompressOutcome outcome = stream->Close();
    ASSERT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
    const KeptSets& sets = outcome.result->sequences[0].kept_sets;
    EXPECT_EQ(sets.counts, (std::vector<uint32_t>(4, kKept)));
    EXPECT_EQ(sets.lists,
              std::vector<std::vector<int32_t>>(format == KeptFormat::kBitmap ? 4 : 0, kept));
    worker.ExpectTokens(worker.Of(0), 0, kept);
  }
}

TEST_F(ClientLayers, LayersThatNeverCameLeaveTheirSequencesDamaged) {
  StartService();
  auto stream = Open(Request());
  ASSERT_TRUE(stream->Ready(1).ok());
  CompressOutcome outcome = stream->Close();
  EXPECT_EQ(outcome.outcome, Outcome::kDamaged);
  EXPECT_EQ(GetErrorDetails(outcome.status)->reason, "field_missing");
  EXPECT_EQ(GetErrorDetails(outcome.status)->field, "layer");
  EXPECT_EQ(outcome.damaged(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(outcome.quarantine, 0u);

  StampedWorker fresh(1, kRows);
  fresh.Lend(*session_);
  CompressRequest request = fresh.Request({fresh.Of(0)}, kKept);
  request.sequences[0].sequence_id = 30;
  stream = Open(request);
  outcome = stream->Close();  // none at all
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  fresh.ExpectUntouched(0);
}

TEST_F(ClientLayers, RefusalsNameTheFieldAndLeaveTheCacheAlone) {
  StartService();
  const auto refused = [this](CompressRequest request, std::string_view reason,
                              std::string_view field) {
    const auto stream = session_->OpenLayers(request);
    ASSERT_FALSE(stream.ok());
    const auto details = GetErrorDetails(stream.status());
    ASSERT_TRUE(details.has_value()) << stream.status();
    EXPECT_EQ(details->reason, reason);
    EXPECT_EQ(details->field, field);
    EXPECT_TRUE(details->unharmed);
  };
  CompressRequest request = Request();
  request.policy.parts.granularity = Granularity::kPerSequence;
  refused(request, "policy_invalid", "open.policy.parts.granularity");
  request = Request();
  request.sequences[1].table[0] = 1'000'000;
  refused(request, "block_out_of_range", "open.sequences[1].table");
  request = Request();
  request.policy.parts.budget = Budget{.kept_tokens = 1, .kept_ratio = 0.5};
  EXPECT_EQ(session_->OpenLayers(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Request();
  request.layers = {0};
  const auto stream = Open(request);
  ASSERT_TRUE(stream->Ready(1).ok());
  const absl::Status error = stream->Next().status();
  EXPECT_EQ(GetErrorDetails(error)->reason, "field_invalid") << error;
  EXPECT_EQ(GetErrorDetails(error)->field, "layer.layer");
  EXPECT_EQ(stream->Close().outcome, Outcome::kUnchanged);
  EXPECT_EQ(GetErrorDetails(stream->Ready(0))->reason, "stream_over");
  for (uint32_t i = 0; i < 2; ++i) worker_.ExpectUntouched(i);
}

TEST_F(ClientLayers, CancelSettles) {
  StartService();
  auto stream = Open(Request());
  CompressOutcome outcome = stream->Cancel();
  EXPECT_EQ(outcome.outcome, Outcome::kUnchanged);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kCancelled);
  for (uint32_t i = 0; i < 2; ++i) worker_.ExpectUntouched(i);

  stream = Open(Request());
  ASSERT_TRUE(stream->Ready(0).ok());
  ASSERT_TRUE(stream->Next().ok());
  outcome = stream->Cancel();
  EXPECT_EQ(outcome.outcome, Outcome::kDamaged);
  stream = nullptr;
  // Nothing is left of it: every slot is free again, and the session's jobs.
  std::vector<std::unique_ptr<LayerStream>> streams;
  StampedWorker others(4, kRows);
  others.Lend(*session_);
  for (uint32_t i = 0; i < 4; ++i) {
    CompressRequest request = others.Request({others.Of(i)}, kKept);
    request.sequences[0].sequence_id = 100 + i;
    streams.push_back(Open(request));
    ASSERT_NE(streams.back(), nullptr);
  }
  streams.clear();  // gives them up
  for (uint32_t i = 0; i < 4; ++i) others.ExpectUntouched(i);
}

TEST_F(ClientLayers, DeadlineIsThatOfTheWholeStream) {
  StartService();
  auto stream = session_->OpenLayers(Request(), {.deadline_ms = 200});
  ASSERT_TRUE(stream.ok()) << stream.status();
  const absl::Status late = (*stream)->Next().status();  // nothing was handed over
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ((*stream)->Close().outcome, Outcome::kUnchanged);
  for (uint32_t i = 0; i < 2; ++i) worker_.ExpectUntouched(i);
}

TEST_F(ClientLayers, CopyLeavesTheSourcesWhateverHappens) {
  StartService();
  CompressRequest request = Request();
  StampedWorker target(2, kRows);
  target.Lend(*session_);
  request.act = CopyTo{target.cache()};
  for (size_t i = 0; i < 2; ++i) {
    request.sequences[i].destination = target.Of(static_cast<uint32_t>(i)).table;
  }
  auto stream = Open(request);
  ASSERT_TRUE(stream->Ready(0).ok());
  ASSERT_TRUE(stream->Next().ok());
  EXPECT_EQ(stream->Cancel().outcome, Outcome::kUnchanged);
  for (uint32_t i = 0; i < 2; ++i) worker_.ExpectUntouched(i);
  stream = Open(request);
  for (const uint32_t layer : {0u, 1u}) ASSERT_TRUE(stream->Ready(layer).ok());
  const CompressOutcome outcome = stream->Close();
  EXPECT_EQ(outcome.outcome, Outcome::kApplied) << outcome.status;
  for (uint32_t i = 0; i < 2; ++i) {
    worker_.ExpectUntouched(i);
    target.ExpectTokens(target.Of(i), i, StampedWorker::StreamingRows(kRows, kKept));
  }
}

// ---- the service is killed in every phase of a stream of two sequences and two layers ----------

struct KillPoint {
  const char* fault;
  Outcome fates[2];
};
void PrintTo(const KillPoint& point, std::ostream* out) { *out << point.fault; }

constexpr Outcome kU = Outcome::kUnchanged, kA = Outcome::kApplied, kD = Outcome::kDamaged;
constexpr KillPoint kKillPoints[] = {
    {"lane.after_select:kill", {kU, kU}},
    {"ledger.after_counts:kill", {kU, kU}},
    {"ledger.after_moving:kill", {kD, kU}},
    {"move.mid_rows:kill", {kD, kU}},
    // Layer 0 of the second sequence; all of layer 0; the second sequence in layer 1.
    {"move.mid_rows:kill:2", {kD, kD}},
    {"lane.after_select:kill:2", {kD, kD}},
    {"ledger.after_done:kill:3", {kA, kD}},
    {"ledger.after_done:kill:4", {kA, kA}},
    {"result.before_store:kill:3", {kA, kA}},
    {"ledger.after_closed:kill", {kA, kA}},
    {"rpc.before_finish:kill:2", {kA, kA}},
};

class ClientLayersKilled : public ClientLayers, public testing::WithParamInterface<KillPoint> {};

TEST_P(ClientLayersKilled, FatesAreTrue) {
  StartService({std::string("--fault=") + GetParam().fault});
  const auto stream = Open(Request());
  ASSERT_NE(stream, nullptr);
  // The service may be gone before the second is sent.
  for (const uint32_t layer : {0u, 1u}) (void)stream->Ready(layer);
  const CompressOutcome outcome = stream->Close();
  EXPECT_EQ(outcome.quarantine, 0u);
  ASSERT_EQ(outcome.fates.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(OutcomeName(outcome.fates[i].outcome), OutcomeName(GetParam().fates[i])) << i;
    if (GetParam().fates[i] == kU) worker_.ExpectUntouched(i);
    if (GetParam().fates[i] != kA) continue;
    EXPECT_EQ(outcome.fates[i].kept, kKept);
    worker_.ExpectTokens(worker_.Of(i), i, StampedWorker::StreamingRows(kRows, kKept));
  }
}

INSTANTIATE_TEST_SUITE_P(Points, ClientLayersKilled, testing::ValuesIn(kKillPoints));

}  // namespace
}  // namespace kvtriage::client
