// CompressLayers as it goes over the wire: the order of messages, what each wrong one gets, and
// that every stream is finished once, whoever gives up first.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include "gtest/gtest.h"
#include "kvtriage/v1/triage.grpc.pb.h"
#include "tests/integration/raw_worker.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

constexpr char kProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

class LayersStream {
 public:
  explicit LayersStream(const RawWorker& worker, int64_t deadline_ms = 20'000)
      : stub_(worker.channel()), context_(worker.Context(deadline_ms)) {
    stream_ = stub_.CompressLayers(context_.get());
  }

  bool Open(const v1::CompressRequest& open) {
    v1::CompressLayersRequest message;
    *message.mutable_open() = open;
    return Write(message);
  }
  bool Ready(uint32_t layer, const std::string& key = RandomKey()) {
    v1::CompressLayersRequest message;
    message.mutable_layer()->set_layer(layer);
    message.mutable_layer()->mutable_header()->set_idempotency_key(key);
    return Write(message);
  }
  bool Write(const v1::CompressLayersRequest& message) { return stream_->Write(message); }
  // The next answer; empty when the stream is over.
  v1::CompressLayersResponse Read() {
    v1::CompressLayersResponse response;
    if (!stream_->Read(&response)) response.Clear();
    return response;
  }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_->TryCancel(); }
  // Reads to the end.
  grpc::Status Finish() {
    v1::CompressLayersResponse response;
    while (stream_->Read(&response)) {
    }
    return stream_->Finish();
  }

 private:
  v1::TriageService::Stub stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::CompressLayersRequest, v1::CompressLayersResponse>>
      stream_;
};

class ServiceLayers : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(service_.Start());
    worker_ = std::make_unique<RawWorker>(service_.endpoint());
    ASSERT_TRUE(worker_->Attach());
    ASSERT_EQ(worker_->Bind(), "ok");
    ASSERT_TRUE(worker_->Lend().ok());
  }
  v1::CompressRequest Request(uint64_t id = 1) const {
    v1::CompressRequest request = worker_->AttentionRequest(id, 48, 12);
    request.clear_header();
    return request;
  }

  ServiceProcess service_{kProgram};
  std::unique_ptr<RawWorker> worker_;
};

TEST_F(ServiceLayers, OpenedThenLayersThenTheWhole) {
  LayersStream stream(*worker_);
  ASSERT_TRUE(stream.Open(Request()));
  const v1::CompressLayersResponse opened = stream.Read();
  ASSERT_TRUE(opened.has_opened());
  EXPECT_NE(opened.opened().header().job_id(), 0u);
  EXPECT_EQ(opened.opened().header().server_epoch(), worker_->welcome().server_epoch());
  EXPECT_TRUE(opened.opened().policy().has_scorer());
  const std::string key = RandomKey();
  ASSERT_TRUE(stream.Ready(1, key));
  const v1::CompressLayersResponse first = stream.Read();
  ASSERT_TRUE(first.has_layer());
  EXPECT_EQ(first.layer().layer(), 1u);
  ASSERT_EQ(first.layer().results_size(), 1);
  EXPECT_EQ(first.layer().results(0).layers_size(), 1);
  EXPECT_EQ(first.layer().results(0).layers(0).layer(), 1u);
  // Its key is Compress's.
  v1::CompressRequest question;
  question.mutable_header()->set_idempotency_key(key);
  question.mutable_header()->set_resolve(true);
  v1::CompressResponse stored;
  const grpc::Status resolved = worker_->Compress(question, &stored);
  ASSERT_TRUE(resolved.ok()) << ReasonOf(resolved);
  EXPECT_TRUE(stored.header().replayed());
  EXPECT_EQ(stored.results(0).SerializeAsString(), first.layer().results(0).SerializeAsString());

  ASSERT_TRUE(stream.Ready(0));
  const v1::CompressLayersResponse second = stream.Read();
  ASSERT_TRUE(second.has_layer());
  stream.HalfClose();
  const v1::CompressLayersResponse closed = stream.Read();
  ASSERT_TRUE(closed.has_closed());
  EXPECT_TRUE(stream.Finish().ok());

  // The whole is what one call says.
  v1::CompressRequest whole = Request(2);
  whole.mutable_header()->set_idempotency_key(RandomKey());
  v1::CompressResponse answer;
  ASSERT_TRUE(worker_->Compress(whole, &answer).ok());
  answer.mutable_results(0)->set_sequence_id(1);
  for (auto& quality : *answer.mutable_quality()) quality.set_sequence_id(1);
  EXPECT_EQ(closed.closed().results(0).SerializeAsString(), answer.results(0).SerializeAsString());
  ASSERT_EQ(closed.closed().quality_size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(closed.closed().quality(i).SerializeAsString(),
              answer.quality(i).SerializeAsString());
  }
  EXPECT_EQ(closed.closed().policy().SerializeAsString(), answer.policy().SerializeAsString());
}

TEST_F(ServiceLayers, WrongMessagesNameTheirField) {
  const auto end_of = [this](const std::vector<v1::CompressLayersRequest>& messages) {
    LayersStream stream(*worker_);
    for (const auto& message : messages) stream.Write(message);
    stream.HalfClose();
    const grpc::Status status = stream.Finish();
    EXPECT_EQ(DetailOf(status).cache_state(), v1::CACHE_STATE_UNHARMED);
    return ReasonOf(status) + " " + DetailOf(status).field();
  };
  v1::CompressLayersRequest open, layer;
  *open.mutable_open() = Request();
  layer.mutable_layer()->mutable_header()->set_idempotency_key(RandomKey());
  EXPECT_EQ(end_of({}), "field_missing open");
  EXPECT_EQ(end_of({layer}), "field_missing open");
  EXPECT_EQ(end_of({{}}), "field_missing open");
  v1::CompressLayersRequest bad = open;
  bad.mutable_open()->mutable_header()->set_idempotency_key(RandomKey());
  EXPECT_EQ(end_of({bad}), "field_invalid open.header");
  bad = open;
  bad.mutable_open()->clear_cache_id();
  EXPECT_EQ(end_of({bad}), "field_missing open.cache_id");
  bad = open;
  bad.mutable_open()->mutable_policy()->mutable_parts()->set_granularity(
      v1::GRANULARITY_PER_SEQUENCE);
  EXPECT_EQ(end_of({bad}), "policy_invalid open.policy.parts.granularity");
  EXPECT_EQ(end_of({open, open}), "field_invalid open");
  EXPECT_EQ(end_of({open, {}}), "field_missing layer");
  bad = layer;
  bad.mutable_layer()->clear_header();
  EXPECT_EQ(end_of({open, bad}), "field_missing layer.header");
  bad = layer;
  bad.mutable_layer()->mutable_header()->set_idempotency_key("short");
  EXPECT_EQ(end_of({open, bad}), "field_invalid layer.header.idempotency_key");
  bad = layer;
  bad.mutable_layer()->mutable_header()->set_resolve(true);
  EXPECT_EQ(end_of({open, bad}), "field_invalid layer.header.resolve");
  bad = layer;
  bad.mutable_layer()->set_layer(7);
  EXPECT_EQ(end_of({open, bad}), "field_invalid layer.layer");
  EXPECT_EQ(end_of({open}), "field_missing layer");
}

TEST_F(ServiceLayers, DeadlinesAreThoseOfCalls) {
  LayersStream far(*worker_, 200'000);
  EXPECT_EQ(ReasonOf(far.Finish()), "deadline_too_long");
  LayersStream soon(*worker_, 300);
  ASSERT_TRUE(soon.Open(Request()));
  EXPECT_EQ(soon.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // It is over on the other side, too: its sequence is free.
  v1::CompressRequest next = Request();
  next.mutable_header()->set_idempotency_key(RandomKey());
  v1::CompressResponse answer;
  EXPECT_TRUE(worker_->Compress(next, &answer).ok());
}

TEST_F(ServiceLayers, EveryWayOutIsFinishedOnce) {
  {
    LayersStream stream(*worker_);  // the service may never see it
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  {
    LayersStream stream(*worker_);
    stream.Open(Request());
    stream.Read();
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  {
    LayersStream stream(*worker_);
    stream.Open(Request());
    stream.Ready(0);
    stream.Ready(1);
    stream.Cancel();
    stream.Finish();
  }
  // A worker that dies takes its streams along. One unfinished call and the service would never
  // end.
  LayersStream orphan(*worker_);
  orphan.Open(Request(9));
  ASSERT_TRUE(orphan.Read().has_opened());
  orphan.Ready(0);
  worker_ = nullptr;
  EXPECT_EQ(ReasonOf(orphan.Finish()), "session_ended");
  service_.process().Signal(SIGTERM);
  EXPECT_EQ(service_.process().WaitExit(), 0);
}

TEST_F(ServiceLayers, DrainLetsTheStreamFinishAndRefusesNewOnes) {
  LayersStream stream(*worker_);
  ASSERT_TRUE(stream.Open(Request()));
  ASSERT_TRUE(stream.Read().has_opened());
  ASSERT_TRUE(stream.Ready(0));
  ASSERT_TRUE(stream.Read().has_layer());
  service_.process().Signal(SIGTERM);
  EXPECT_TRUE(WaitUntil([&] {
    LayersStream late(*worker_);
    late.Open(Request(5));
    late.HalfClose();  // refused at once, or as soon as it is open
    return ReasonOf(late.Finish()) == "draining";
  }));
  ASSERT_TRUE(stream.Ready(1));
  ASSERT_TRUE(stream.Read().has_layer());
  stream.HalfClose();
  EXPECT_TRUE(stream.Read().has_closed());
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(service_.process().WaitExit(), 0);
}

}  // namespace
}  // namespace kvtriage
