// Every RPC of the service over its real sockets, without the client library.
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/core/splitmix64.h"
#include "service/rpc/memory_prober.h"
#include "tests/integration/raw_worker.h"
#include "tests/support/lent_memfd.h"
#include "tests/support/service_process.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

using ::testing::ElementsAre;

constexpr char kProgram[] = KVTRIAGE_BIN_DIR "/kvtriaged";

std::vector<int32_t> Int32s(const std::string& bytes) {
  std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class ServiceRpc : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(service_.Start()); }

  // A worker that has lent its memory.
  std::unique_ptr<RawWorker> Lender() {
    auto worker = std::make_unique<RawWorker>(service_.endpoint());
    EXPECT_TRUE(worker->Attach());
    EXPECT_EQ(worker->Bind(), "ok");
    const grpc::Status lent = worker->Lend();
    EXPECT_TRUE(lent.ok()) << ReasonOf(lent) << ": " << lent.error_message();
    return worker;
  }

  ServiceProcess service_{kProgram};
};

TEST_F(ServiceRpc, AttachWelcomesWithLimitsAndDevices) {
  RawWorker worker(service_.endpoint());
  ASSERT_TRUE(worker.Attach());
  const v1::Welcome& welcome = worker.welcome();
  EXPECT_NE(welcome.server_epoch(), 0u);
  EXPECT_EQ(welcome.session_token().size(), 24u);
  EXPECT_EQ(welcome.fd_socket_name(), "kvtriage-fd.sock");
  EXPECT_EQ(welcome.ledger_slots(), 4u);
  EXPECT_EQ(welcome.limits().max_request_bytes(), 256u << 10);
  EXPECT_EQ(welcome.limits().max_deadline_ms(), 120'000u);
  ASSERT_EQ(welcome.devices_size(), 1);
  EXPECT_EQ(welcome.devices(0).kind(), v1::Device::KIND_CPU);
  EXPECT_EQ(welcome.devices(0).health(), v1::Device::HEALTH_OK);
  EXPECT_TRUE(worker.Goodbye().ok());
}

// A service without a GPU starts, says which devices it has, and takes host memory.
// https://github.com/LMCache/LMCache/issues/4186
// https://github.com/pytorch/tensorpipe/issues/412
// https://github.com/triton-inference-server/server/pull/8936
TEST_F(ServiceRpc, ServerInfoNeedsNoSessionAndListsPolicies) {
  const auto channel = Connect(service_.endpoint());
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  const grpc::Status status =
      v1::SessionService::NewStub(channel)->GetServerInfo(&context, {}, &info);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(info.policies_size(), 28);
  EXPECT_EQ(info.policies(0).name(), "streaming");
  EXPECT_EQ(info.default_policy(), "");
  EXPECT_FALSE(info.draining());
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).name(), "cpu");
  EXPECT_GT(info.devices(0).memory_bytes(), 1u << 28);
  const auto epoch = context.GetServerTrailingMetadata().find("kvtriage-epoch-bin");
  ASSERT_NE(epoch, context.GetServerTrailingMetadata().end());
  EXPECT_EQ(epoch->second.size(), 8u);
}

TEST_F(ServiceRpc, RegisterListProbeUnregister) {
  const auto worker = Lender();
  const auto memory = v1::MemoryService::NewStub(worker->channel());
  const auto admin = v1::AdminService::NewStub(worker->channel());

  v1::ListRegionsResponse listing;
  ASSERT_TRUE(memory->ListRegions(worker->Context().get(), {}, &listing).ok());
  ASSERT_EQ(listing.regions_size(), 1);
  EXPECT_EQ(listing.regions(0).region_id(), worker->region_id());
  EXPECT_EQ(listing.regions(0).size(), RawWorker::kRegionBytes);
  EXPECT_EQ(listing.regions(0).pins(), 0u);
  ASSERT_EQ(listing.caches_size(), 1);
  EXPECT_EQ(listing.caches(0).layers(), RawWorker::kLayers);
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), RawWorker::kRegionBytes);

  v1::ProbeMemoryRequest probe;
  probe.set_region_id(worker->region_id());
  probe.set_offset(16);
  probe.set_length(100);
  probe.set_op(v1::ProbeMemoryRequest::OP_CHECKSUM);
  v1::ProbeMemoryResponse probed;
  const auto own = std::as_bytes(std::span(worker->memory() + 16, 100));
  ASSERT_TRUE(admin->ProbeMemory(worker->Context().get(), probe, &probed).ok());
  EXPECT_EQ(probed.checksum(), Fnv1a64(own));
  probe.set_op(v1::ProbeMemoryRequest::OP_WRITE_PATTERN);
  probe.set_seed(99);
  ASSERT_TRUE(admin->ProbeMemory(worker->Context().get(), probe, &probed).ok());
  std::vector<std::byte> pattern(100);
  WritePattern(pattern, 99);
  EXPECT_EQ(std::memcmp(worker->memory() + 16, pattern.data(), pattern.size()), 0);
  probe.set_offset(RawWorker::kRegionBytes - 50);
  EXPECT_EQ(ReasonOf(admin->ProbeMemory(worker->Context().get(), probe, &probed)),
            "range_out_of_region");
  probe.set_offset(UINT64_MAX - 50);
  EXPECT_EQ(ReasonOf(admin->ProbeMemory(worker->Context().get(), probe, &probed)),
            "range_out_of_region");
  probe.set_region_id(worker->region_id() + 1);
  EXPECT_EQ(ReasonOf(admin->ProbeMemory(worker->Context().get(), probe, &probed)),
            "memory_unknown");

  v1::UnregisterRegionsRequest everything;
  everything.set_everything(true);
  everything.add_region_ids(worker->region_id());
  v1::UnregisterRegionsResponse closed;
  EXPECT_EQ(ReasonOf(memory->UnregisterRegions(worker->Context().get(), everything, &closed)),
            "field_invalid");
  everything.clear_region_ids();
  ASSERT_TRUE(memory->UnregisterRegions(worker->Context().get(), everything, &closed).ok());
  EXPECT_EQ(closed.closed(), 1u);
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), 0);
  v1::UnregisterRegionsRequest again;
  again.add_region_ids(worker->region_id());
  ASSERT_TRUE(memory->UnregisterRegions(worker->Context().get(), again, &closed).ok());
  EXPECT_EQ(closed.already_gone(), 1u);
}

TEST_F(ServiceRpc, CompressSelectsCountsAndReleases) {
  const auto worker = Lender();
  v1::CompressResponse response;
  const grpc::Status status = worker->Compress(worker->RecencyRequest(5, 40, 10), &response);
  ASSERT_TRUE(status.ok()) << ReasonOf(status) << ": " << status.error_message();
  ASSERT_EQ(response.results_size(), 1);
  EXPECT_EQ(response.results(0).kept(), 10u);
  EXPECT_EQ(response.results(0).dropped(), 30u);
  EXPECT_EQ(response.header().server_epoch(), worker->welcome().server_epoch());
  EXPECT_TRUE(response.policy().scorer().has_recency());
  EXPECT_EQ(service_.Metric("kvtriage_rpc_requests_total", "method=\"Compress\",result=\"ok\""), 1);
  EXPECT_EQ(service_.Metric("kvtriage_decisions_total", "outcome=\"advised\",policy=\"other\""), 1);
  EXPECT_EQ(service_.Metric("kvtriage_tokens_considered_total"), 40);
  EXPECT_EQ(service_.Metric("kvtriage_tokens_kept_total"), 10);

  v1::ReleaseSequenceRequest release;
  release.add_sequence_ids(5);
  release.add_sequence_ids(6);
  v1::ReleaseSequenceResponse released;
  ASSERT_TRUE(v1::TriageService::NewStub(worker->channel())
                  ->ReleaseSequence(worker->Context().get(), release, &released)
                  .ok());
  EXPECT_EQ(released.released() + released.already_gone(), 2u);
}

TEST_F(ServiceRpc, CompressMeasuresWhatIsAskedFor) {
  const auto worker = Lender();
  v1::CompressResponse response;
  const grpc::Status status = worker->Compress(worker->AttentionRequest(5, 48, 16), &response);
  ASSERT_TRUE(status.ok()) << ReasonOf(status) << ": " << status.error_message();
  ASSERT_EQ(response.quality_size(), static_cast<int>(RawWorker::kLayers));
  for (const v1::Quality& quality : response.quality()) {
    EXPECT_GT(quality.mass_mean(), 0);
    EXPECT_LE(quality.mass_mean(), 1.0001);
    EXPECT_GT(quality.error(), 0);
    EXPECT_TRUE(quality.has_recall_mean());
    EXPECT_EQ(quality.head_error_size(), static_cast<int>(RawWorker::kHeads));
  }
  EXPECT_EQ(service_.Metric("kvtriage_attention_mass_retained_ratio_count"), 1);
  EXPECT_EQ(service_.Metric("kvtriage_output_error_ratio_count"), 1);
  EXPECT_EQ(service_.Metric("kvtriage_output_error_tail_ratio_count"), 1);
  EXPECT_EQ(service_.Metric("kvtriage_oracle_recall_ratio_count"), 1);
  EXPECT_EQ(service_.Metric("kvtriage_layer_kept_ratio_count"), RawWorker::kLayers);
  for (const char* stage : {"validate", "queue", "plan", "score", "select", "measure", "reply"}) {
    EXPECT_EQ(service_.Metric("kvtriage_stage_duration_seconds_count",
                              std::string("stage=\"") + stage + "\""),
              1)
        << stage;
  }
}

TEST_F(ServiceRpc, SelectRecomputeNamesRows) {
  const auto worker = Lender();
  v1::SelectRecomputeResponse response;
  const grpc::Status status =
      v1::BlendService::NewStub(worker->channel())
          ->SelectRecompute(worker->Context().get(), worker->RecomputeRequest(32), &response);
  ASSERT_TRUE(status.ok()) << ReasonOf(status) << ": " << status.error_message();
  EXPECT_EQ(response.must(), 1u) << "the last row, for its logits";
  EXPECT_EQ(response.base(), 31u);
  EXPECT_EQ(Int32s(response.rows_le()).size(), response.must() + response.hkvd());
  EXPECT_EQ(Int32s(response.limits_le()).back(), 32);
  EXPECT_GT(response.divergence_share(), 0.25);
  EXPECT_EQ(service_.Metric("kvtriage_blend_tokens_total", "verdict=\"recompute\""),
            response.must() + response.hkvd());
  EXPECT_EQ(service_.Metric("kvtriage_blend_covered_divergence_ratio_count"), 1);
}

// A call that is repeated because its answer was lost must not run twice.
// https://github.com/grpc/grpc/issues/9767
// https://github.com/open-telemetry/oteps/pull/65
TEST_F(ServiceRpc, RetriedCallRunsOnce) {
  const auto worker = Lender();
  v1::CompressRequest request = worker->RecencyRequest(7, 60, 20);
  request.mutable_act()->mutable_in_place()->set_ledger_slot(0);
  v1::CompressResponse first, repeated, other;
  const grpc::Status status = worker->Compress(request, &first);
  ASSERT_TRUE(status.ok()) << ReasonOf(status) << ": " << status.error_message();
  const std::string after(worker->memory(), RawWorker::kRegionBytes);
  ASSERT_TRUE(worker->Compress(request, &repeated).ok());
  EXPECT_TRUE(repeated.header().replayed());
  EXPECT_FALSE(first.header().replayed());
  EXPECT_EQ(repeated.results(0).SerializeAsString(), first.results(0).SerializeAsString());
  EXPECT_EQ(std::string(worker->memory(), RawWorker::kRegionBytes), after);

  v1::CompressRequest stale = request;
  stale.mutable_header()->set_idempotency_key(RandomKey());
  const grpc::Status refused = worker->Compress(stale, &other);
  EXPECT_EQ(ReasonOf(refused), "sequence_stale");
  EXPECT_EQ(DetailOf(refused).cache_state(), v1::CACHE_STATE_UNHARMED);

  v1::CompressRequest changed = request;
  changed.mutable_policy()->mutable_parts()->mutable_budget()->set_kept_tokens(21);
  EXPECT_EQ(ReasonOf(worker->Compress(changed, &other)), "key_reused");
  EXPECT_EQ(std::string(worker->memory(), RawWorker::kRegionBytes), after);
}

TEST_F(ServiceRpc, ResolveOfAnUnknownKeyKillsTheKey) {
  const auto worker = Lender();
  v1::CompressRequest request = worker->RecencyRequest(7, 60, 20);
  v1::CompressRequest resolve;
  *resolve.mutable_header() = request.header();
  resolve.mutable_header()->set_resolve(true);
  v1::CompressResponse response;
  EXPECT_EQ(ReasonOf(worker->Compress(resolve, &response)), "key_dead");
  EXPECT_EQ(ReasonOf(worker->Compress(request, &response)), "key_dead");
}

// The restarted service has another epoch and knows no old token.
// https://github.com/LMCache/LMCache/issues/4642
// https://github.com/LMCache/LMCache/pull/4687
// https://github.com/LMCache/LMCache/pull/3208
TEST_F(ServiceRpc, RestartIsNoticed) {
  const auto worker = Lender();
  service_.process().Signal(SIGKILL);
  service_.process().WaitExit();
  ASSERT_TRUE(service_.Start());
  v1::CompressResponse response;
  grpc::Status status;
  ASSERT_TRUE(WaitUntil([&] {  // the first call may still go to the dead connection
    const auto context = worker->Context();
    context->set_wait_for_ready(true);
    status = v1::TriageService::NewStub(worker->channel())
                 ->Compress(context.get(), worker->RecencyRequest(1, 40, 10), &response);
    return status.error_code() != grpc::StatusCode::UNAVAILABLE;
  }));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ReasonOf(status), "session_unknown");
  EXPECT_NE(DetailOf(status).server_epoch(), worker->welcome().server_epoch());
}

TEST_F(ServiceRpc, EveryGuardedMethodRefusesStrangers) {
  RawWorker worker(service_.endpoint());
  ASSERT_TRUE(worker.Attach());
  const auto memory = v1::MemoryService::NewStub(worker.channel());
  const auto triage = v1::TriageService::NewStub(worker.channel());
  const auto blend = v1::BlendService::NewStub(worker.channel());
  const auto admin = v1::AdminService::NewStub(worker.channel());
  const std::vector<std::pair<std::string, std::function<grpc::Status(grpc::ClientContext*)>>>
      calls = {
          {"RegisterRegions",
           [&](auto* c) {
             v1::RegisterRegionsResponse r;
             return memory->RegisterRegions(c, {}, &r);
           }},
          {"UnregisterRegions",
           [&](auto* c) {
             v1::UnregisterRegionsResponse r;
             return memory->UnregisterRegions(c, {}, &r);
           }},
          {"ListRegions",
           [&](auto* c) {
             v1::ListRegionsResponse r;
             return memory->ListRegions(c, {}, &r);
           }},
          {"Compress",
           [&](auto* c) {
             v1::CompressResponse r;
             return triage->Compress(c, {}, &r);
           }},
          {"CompressLayers",
           [&](auto* c) {
             v1::CompressLayersResponse r;
             const auto stream = triage->CompressLayers(c);
             while (stream->Read(&r)) {
             }
             return stream->Finish();
           }},
          {"ReleaseSequence",
           [&](auto* c) {
             v1::ReleaseSequenceResponse r;
             return triage->ReleaseSequence(c, {}, &r);
           }},
          {"SelectRecompute",
           [&](auto* c) {
             v1::SelectRecomputeResponse r;
             return blend->SelectRecompute(c, {}, &r);
           }},
          {"Rerotate",
           [&](auto* c) {
             v1::RerotateResponse r;
             return blend->Rerotate(c, {}, &r);
           }},
          {"Fuse",
           [&](auto* c) {
             v1::FuseResponse r;
             return blend->Fuse(c, {}, &r);
           }},
          {"ProbeMemory",
           [&](auto* c) {
             v1::ProbeMemoryResponse r;
             return admin->ProbeMemory(c, {}, &r);
           }},
      };
  std::string wrong = worker.welcome().session_token();
  wrong.back() = static_cast<char>(wrong.back() ^ 1);
  for (const auto& [name, call] : calls) {
    grpc::ClientContext none, bad, two;
    grpc::Status status = call(&none);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << name;
    EXPECT_EQ(ReasonOf(status), "session_unknown") << name;
    EXPECT_EQ(DetailOf(status).server_epoch(), worker.welcome().server_epoch()) << name;
    EXPECT_TRUE(none.GetServerTrailingMetadata().contains("kvtriage-epoch-bin")) << name;
    bad.AddMetadata("kvtriage-session-bin", wrong);
    EXPECT_EQ(ReasonOf(call(&bad)), "session_unknown") << name;
    two.AddMetadata("kvtriage-session-bin", worker.welcome().session_token());
    two.AddMetadata("kvtriage-session-bin", wrong);
    EXPECT_EQ(ReasonOf(call(&two)), "session_unknown") << name << ": which of the two?";
    EXPECT_EQ(ReasonOf(call(worker.Context().get())), "session_not_bound") << name;
  }
  EXPECT_EQ(worker.BindWith(wrong), "session_unknown");
  EXPECT_EQ(service_.Metric("kvtriage_rejections_total", "session_unknown"), calls.size() * 3);
}

TEST_F(ServiceRpc, ForeignIdsAreUnknown) {
  const auto a = Lender(), b = Lender();
  v1::CompressRequest request = b->RecencyRequest(1, 40, 10);
  request.set_cache_id(a->cache_id());
  v1::CompressResponse response;
  EXPECT_EQ(ReasonOf(b->Compress(request, &response)), "memory_unknown");
  v1::UnregisterRegionsRequest steal;
  steal.add_region_ids(a->region_id());
  v1::UnregisterRegionsResponse closed;
  ASSERT_TRUE(v1::MemoryService::NewStub(b->channel())
                  ->UnregisterRegions(b->Context().get(), steal, &closed)
                  .ok());
  EXPECT_EQ(closed.already_gone(), 1u);
  EXPECT_TRUE(a->Compress(a->RecencyRequest(1, 40, 10), &response).ok());
}

TEST_F(ServiceRpc, DeadlineOverTwoMinutesIsRefused) {
  const auto worker = Lender();
  v1::CompressResponse response;
  const auto triage = v1::TriageService::NewStub(worker->channel());
  const v1::CompressRequest request = worker->RecencyRequest(1, 40, 10);
  EXPECT_EQ(ReasonOf(triage->Compress(worker->Context(130'000).get(), request, &response)),
            "deadline_too_long");
  EXPECT_TRUE(triage->Compress(worker->Context(119'000).get(), request, &response).ok());
  EXPECT_TRUE(triage->Compress(worker->Context(0).get(), request, &response).ok());
}

TEST_F(ServiceRpc, StreamRulesAreEnforced) {
  v1::AttachRequest goodbye, hello;
  goodbye.mutable_goodbye();
  hello.mutable_hello()->set_min_api_revision(1);
  hello.mutable_hello()->set_max_api_revision(1);
  hello.mutable_hello()->set_client("x/1");
  const auto first = [&](const v1::AttachRequest& request) {
    const auto stub = v1::SessionService::NewStub(Connect(service_.endpoint()));
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    stream->Write(request);
    v1::AttachResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  };
  EXPECT_EQ(ReasonOf(first(goodbye)), "field_invalid");
  EXPECT_EQ(ReasonOf(first({})), "field_invalid");
  v1::AttachRequest future = hello;
  future.mutable_hello()->set_min_api_revision(2);
  future.mutable_hello()->set_max_api_revision(3);
  EXPECT_EQ(ReasonOf(first(future)), "api_revision");
  v1::AttachRequest odd = hello;
  odd.mutable_hello()->set_client("bad\nname");
  EXPECT_EQ(ReasonOf(first(odd)), "field_invalid");

  RawWorker twice(service_.endpoint());
  ASSERT_TRUE(twice.Attach());
  twice.Send(hello);
  const auto notice = twice.Read();
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(notice->notice().kind(), v1::Notice::KIND_SESSION_ENDING);
  EXPECT_EQ(notice->notice().reason(), "protocol");
  EXPECT_EQ(ReasonOf(twice.FinishStream()), "field_invalid");
  EXPECT_EQ(service_.Metric("kvtriage_sessions_ended_total", "protocol"), 1);
}

TEST_F(ServiceRpc, HelloMustComeWithinFiveSeconds) {
  const auto stub = v1::SessionService::NewStub(Connect(service_.endpoint()));
  grpc::ClientContext context;
  const auto begin = std::chrono::steady_clock::now();
  const auto stream = stub->Attach(&context);
  v1::AttachResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(ReasonOf(stream->Finish()), "field_invalid");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(4'500));
}

TEST_F(ServiceRpc, LostStreamEndsTheSessionAndItsMappings) {
  auto worker = Lender();
  EXPECT_EQ(service_.Metric("kvtriage_sessions"), 1);
  worker.reset();
  EXPECT_TRUE(WaitUntil(
      [&] {
        return service_.Metric("kvtriage_sessions") == 0 &&
               service_.Metric("kvtriage_mapped_bytes") == 0;
      },
      2'000));
  EXPECT_EQ(service_.Metric("kvtriage_sessions_ended_total", "lease"), 1);
}

TEST_F(ServiceRpc, GoodbyeAnswersWhenEverythingIsUnmapped) {
  const auto worker = Lender();
  EXPECT_TRUE(worker->Goodbye().ok());
  EXPECT_EQ(service_.Metric("kvtriage_mapped_bytes"), 0);
  EXPECT_EQ(service_.Metric("kvtriage_sessions_ended_total", "client"), 1);
  v1::CompressResponse response;
  EXPECT_EQ(ReasonOf(worker->Compress(worker->RecencyRequest(1, 40, 10), &response)),
            "session_unknown");
}

TEST_F(ServiceRpc, HealthKnowsEveryName) {
  const auto channel = Connect(service_.endpoint());
  for (const char* name : {"", "kvtriage.startup", "kvtriage.ready", "kvtriage.v1.SessionService",
                           "kvtriage.v1.MemoryService", "kvtriage.v1.TriageService",
                           "kvtriage.v1.BlendService", "kvtriage.v1.AdminService"}) {
    EXPECT_EQ(HealthOf(channel, name), "SERVING") << name;
  }
  EXPECT_EQ(HealthOf(channel, "kvtriage.unknown"), std::to_string(grpc::StatusCode::NOT_FOUND));
}

// A small message must not become a large one: compression is off.
// https://github.com/grpc/grpc/pull/41996
// https://github.com/grpc/grpc/issues/23149
// https://github.com/grpc/grpc-go/pull/9114
// https://github.com/grpc/grpc-rust/pull/2484
TEST_F(ServiceRpc, CompressedRequestsAreRefusedByTheTransport) {
  const auto worker = Lender();
  const double before = *service_.Metric("process_resident_memory_bytes");
  v1::CompressRequest bomb = worker->RecencyRequest(1, 40, 10);
  for (int i = 0; i < 1'000'000; ++i) bomb.add_sequences();
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const auto context = worker->Context();
    context->set_compression_algorithm(algorithm);
    v1::CompressResponse response;
    const grpc::Status status =
        v1::TriageService::NewStub(worker->channel())->Compress(context.get(), bomb, &response);
    EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNIMPLEMENTED ||
                status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
        << status.error_code() << status.error_message();
  }
  EXPECT_LT(*service_.Metric("process_resident_memory_bytes") - before,
            2.0 * (256 << 10) + (1 << 20));
  v1::CompressResponse response;
  EXPECT_TRUE(worker->Compress(worker->RecencyRequest(1, 40, 10), &response).ok());
}

TEST_F(ServiceRpc, RequestOverTheReceiveLimitIsRefused) {
  const auto worker = Lender();
  v1::CompressRequest large = worker->RecencyRequest(1, 40, 10);
  large.mutable_sequences(0)->mutable_table()->set_inline_le(std::string(300 << 10, '\0'));
  v1::CompressResponse response;
  EXPECT_EQ(worker->Compress(large, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace kvtriage
