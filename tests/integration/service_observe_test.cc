// What the running service shows of itself: metrics from the start, and no secrets anywhere.
#include <unistd.h>

#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/observe/catalogue.h"
#include "tests/integration/raw_worker.h"
#include "tests/support/lent_memfd.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"
#include "tests/unit/observe/metrics_page.h"

namespace kvtriage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

TEST(ServiceObserve, PageIsCompleteAtZeroFromTheStart) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start({"--policy.default=snapkv", "--metrics.model=test-model"}));
  const std::string page = service.Metrics();
  const auto types = TypesOf(page);
  for (const catalogue::Metric* metric : catalogue::kAll) {
    const bool later = std::string(metric->name).find("_layer_") != std::string::npos;
    EXPECT_EQ(types.contains(metric->name), !later) << metric->name;
  }
  EXPECT_LE(types.size(), catalogue::kAll.size()) << "names that are not in the catalogue";
  const std::set<std::string> set_at_start = {"kvtriage_ready",
                                              "kvtriage_queue_limit_jobs{device=\"cpu\"}",
                                              "kvtriage_running_score_limit_bytes"};
  for (const auto& [series, value] : SeriesOf(page)) {
    if (series.starts_with("process_") || series.find("_info{") != std::string::npos) continue;
    if (set_at_start.contains(series)) {
      EXPECT_GT(value, 0) << series;
    } else {
      EXPECT_EQ(value, 0) << series;
    }
  }
  EXPECT_THAT(page, HasSubstr("policy=\"snapkv\""));
  EXPECT_THAT(page, HasSubstr("model=\"test-model\""));
  EXPECT_THAT(page, HasSubstr(std::string("version=\"") + KVTRIAGE_VERSION));
}

// https://github.com/zakura-core/zakura/pull/697
// https://github.com/jupp0r/prometheus-cpp/issues/720
// https://github.com/jupp0r/prometheus-cpp/issues/646
TEST(ServiceObserve, ThousandRegistrationsAddNoSeries) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start());
  RawWorker worker(service.endpoint());
  ASSERT_TRUE(worker.Attach());
  ASSERT_EQ(worker.Bind(), "ok");
  ASSERT_TRUE(worker.Lend().ok());  // brings the series by layer
  const size_t before = SeriesOf(service.Metrics()).size();
  const auto memory = v1::MemoryService::NewStub(worker.channel());
  const UniqueFd memfd = MakeLentMemfd(4096);
  for (uint32_t i = 0; i < 1'000; ++i) {
    v1::RegisterRegionsRequest request;
    request.mutable_header()->set_idempotency_key(RandomKey());
    v1::RegionSpec& region = *request.add_regions();
    region.mutable_host()->set_ticket(worker.Offer(memfd));
    region.set_size(4096);
    region.set_access(v1::ACCESS_READ);
    region.set_tag(i);
    v1::RegisterRegionsResponse registered;
    const grpc::Status status =
        memory->RegisterRegions(worker.Context().get(), request, &registered);
    ASSERT_TRUE(status.ok()) << i << ": " << ReasonOf(status);
    v1::UnregisterRegionsRequest gone;
    gone.add_region_ids(registered.region_ids(0));
    v1::UnregisterRegionsResponse closed;
    ASSERT_TRUE(memory->UnregisterRegions(worker.Context().get(), gone, &closed).ok());
  }
  EXPECT_EQ(SeriesOf(service.Metrics()).size(), before);
  EXPECT_EQ(service.Metric("kvtriage_regions"), 1);
  EXPECT_EQ(service.Metric("kvtriage_mapped_bytes"), RawWorker::kRegionBytes);
  EXPECT_EQ(service.Metric("kvtriage_unmaps_pending"), 0);
}

// There are no series of a session, so none can outlive it.
// https://github.com/jupp0r/prometheus-cpp/pull/322
TEST(ServiceObserve, SessionThatEndsDuringItsJobStillCounts) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start({"--fault=lane.job_start:delay=1500"}));
  auto worker = std::make_unique<RawWorker>(service.endpoint());
  ASSERT_TRUE(worker->Attach());
  ASSERT_EQ(worker->Bind(), "ok");
  ASSERT_TRUE(worker->Lend().ok());
  v1::CompressResponse response;
  EXPECT_FALSE(
      v1::TriageService::NewStub(worker->channel())
          ->Compress(worker->Context(500).get(), worker->RecencyRequest(1, 40, 10), &response)
          .ok());
  worker.reset();
  EXPECT_TRUE(WaitUntil([&] {
    return service.Metric("kvtriage_sessions") == 0 && service.Metric("kvtriage_mapped_bytes") == 0;
  }));
  EXPECT_TRUE(service.process().running());
  EXPECT_EQ(service.Metric("kvtriage_rpc_requests_total", "method=\"Compress\""), 1);
}

// Canaries in everything that is secret or a client's; they must be nowhere in log, metrics and
// errors. https://github.com/triton-inference-server/server/pull/8269
TEST(ServiceObserve, NothingSecretLeaves) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start());
  RawWorker worker(service.endpoint());
  ASSERT_TRUE(worker.Attach());
  ASSERT_EQ(worker.Bind(), "ok");
  ASSERT_TRUE(worker.Lend().ok());
  const std::string canary = "KANARIENVOGEL";
  const std::string key = canary + "KEY";  // 16 bytes
  ASSERT_EQ(key.size(), 16u);
  memcpy(worker.memory(), canary.data(), canary.size());

  std::string said;  // everything that came back
  const auto note = [&](const grpc::Status& status) {
    EXPECT_FALSE(status.ok());
    said += status.error_message() + status.error_details() + "\n";
  };
  v1::CompressResponse response;
  v1::CompressRequest bad = worker.RecencyRequest(1, 40, 10);
  bad.mutable_header()->set_idempotency_key(key);
  bad.mutable_policy()->set_name(canary);
  note(worker.Compress(bad, &response));
  v1::CompressRequest changed = worker.RecencyRequest(1, 40, 10);
  changed.mutable_header()->set_idempotency_key(key);
  ASSERT_TRUE(worker.Compress(changed, &response).ok());
  changed.mutable_policy()->mutable_parts()->mutable_budget()->set_kept_tokens(11);
  note(worker.Compress(changed, &response));
  v1::CompressRequest table = worker.RecencyRequest(2, 40, 10);
  table.mutable_sequences(0)->mutable_table()->set_inline_le(canary);
  note(worker.Compress(table, &response));

  const auto memory = v1::MemoryService::NewStub(worker.channel());
  v1::RegisterRegionsRequest registration;
  registration.mutable_header()->set_idempotency_key(RandomKey());
  v1::RegionSpec& region = *registration.add_regions();
  const UniqueFd memfd = MakeLentMemfd(4096, 0, kLentSeals, canary.c_str());
  const uint64_t ticket = worker.Offer(memfd);
  region.mutable_host()->set_ticket(ticket);
  region.set_size(4096);
  region.set_access(v1::ACCESS_READ);
  region.mutable_fingerprint()->set_expected(canary);
  v1::RegisterRegionsResponse registered;
  note(memory->RegisterRegions(worker.Context().get(), registration, &registered));
  registration.mutable_header()->set_idempotency_key(RandomKey());
  note(
      memory->RegisterRegions(worker.Context().get(), registration, &registered));  // a used ticket

  grpc::ClientContext wrong_token;
  wrong_token.AddMetadata("kvtriage-session-bin", canary + "0123456789a");
  v1::ListRegionsResponse listing;
  note(memory->ListRegions(&wrong_token, {}, &listing));
  grpc::ClientContext traced;
  traced.AddMetadata("kvtriage-session-bin", worker.welcome().session_token());
  traced.AddMetadata("traceparent", "00-" + canary);
  traced.AddMetadata("user", canary);
  v1::UnregisterRegionsRequest odd;
  odd.set_everything(true);
  odd.add_region_ids(1);
  v1::UnregisterRegionsResponse closed;
  note(memory->UnregisterRegions(&traced, odd, &closed));
  RawWorker stranger(service.endpoint());
  EXPECT_NE(stranger.BindWith(canary + "0123456789a"), "ok");
  v1::AttachRequest hello;
  hello.mutable_hello()->set_min_api_revision(1);
  hello.mutable_hello()->set_max_api_revision(1);
  hello.mutable_hello()->set_client(canary + " <bad>");
  grpc::ClientContext context;
  const auto stream = v1::SessionService::NewStub(worker.channel())->Attach(&context);
  stream->Write(hello);
  v1::AttachResponse ignored;
  while (stream->Read(&ignored)) {
  }
  note(stream->Finish());

  said += service.Metrics();
  ASSERT_TRUE(WaitUntil([&] { return service.Log().find("\"Attach\"") != std::string::npos; }));
  said += service.Log();
  EXPECT_THAT(said, Not(HasSubstr(canary)));
  EXPECT_THAT(said, Not(HasSubstr(std::to_string(ticket))));
  EXPECT_THAT(said, Not(HasSubstr(worker.welcome().session_token().substr(8))));
  std::ostringstream pointer;
  pointer << static_cast<void*>(worker.memory());
  EXPECT_THAT(said, Not(HasSubstr("0x"))) << "no address of ours either";
}

TEST(ServiceObserve, StartLineNamesEveryListener) {
  ServiceProcess service(kProgram);
  ASSERT_TRUE(service.Start());
  const std::string log = service.Log();
  EXPECT_THAT(log, HasSubstr("\"version\":\"" KVTRIAGE_VERSION "\""));
  EXPECT_THAT(log, HasSubstr("\"main\":\"unix:" + service.endpoint() + "\""));
  EXPECT_THAT(log, HasSubstr("kvtriage-fd.sock"));
  EXPECT_THAT(log, HasSubstr("\"metrics\":\"127.0.0.1:"));
  EXPECT_THAT(log, Not(HasSubstr("\"metrics\":\"127.0.0.1:0\"")));
}

}  // namespace
}  // namespace kvtriage
