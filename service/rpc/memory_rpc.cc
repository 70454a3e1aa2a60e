// MemoryService, and the doctor's probe of lent memory.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "kvtriage/v1/admin.grpc.pb.h"
#include "kvtriage/v1/memory.grpc.pb.h"
#include "service/rpc/answer_message.h"
#include "service/rpc/services.h"
#include "service/rpc/unary_call.h"
#include "service/validate/body_hash.h"
#include "service/validate/field_checks.h"
#include "service/validate/region_proto.h"

namespace kvtriage {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr absl::Duration kUsual = absl::Milliseconds(kDefaultDeadlineMs);

// Our answer should come before gRPC's own DEADLINE_EXCEEDED, which says nothing about the region.
constexpr absl::Duration kAnswerMargin = absl::Milliseconds(20);

uint32_t MsUntil(absl::Time deadline) {
  const int64_t ms = absl::ToInt64Milliseconds(deadline - absl::Now() - kAnswerMargin);
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, kMaxDeadlineMs));
}

absl::StatusOr<UnregisterSpec> ParseUnregister(const v1::UnregisterRegionsRequest& request) {
  UnregisterSpec spec;
  spec.region_ids.assign(request.region_ids().begin(), request.region_ids().end());
  spec.cache_ids.assign(request.cache_ids().begin(), request.cache_ids().end());
  spec.everything = request.everything();
  if (spec.everything && !(spec.region_ids.empty() && spec.cache_ids.empty())) {
    return Invalid("everything", "the lists must be empty when everything goes");
  }
  return spec;
}

class MemoryService final : public v1::MemoryService::CallbackService {
 public:
  explicit MemoryService(RpcCore& core) : core_(core) {}

 private:
  ServerUnaryReactor* RegisterRegions(CallbackServerContext* context,
                                      const v1::RegisterRegionsRequest* request,
                                      v1::RegisterRegionsResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kRegisterRegions, kUsual);
    if (call->finished()) return call->reactor();
    absl::StatusOr<RegisterSpec> spec = ParseRegister(*request, core_.limits);
    if (!spec.ok()) {
      call->Finish(spec.status());
      return call->reactor();
    }
    uint32_t model_layers = 0;
    for (const RegisterSpec::Cache& cache : spec->caches) {
      model_layers = std::max(model_layers, cache.spec.num_layers);
    }
    auto done = [this, call, response, model_layers](const CallResult& result) {
      if (!result.status.ok()) return call->Finish(result.status);
      core_.metrics.OnCacheRegistered(model_layers);
      FillRegisterResponse(result, core_.epoch, *response);
      call->Finish(absl::OkStatus());
    };
    core_.engine.Register(call->EngineCall(BodyHash(*request), std::move(done)), *std::move(spec));
    return call->reactor();
  }

  ServerUnaryReactor* UnregisterRegions(CallbackServerContext* context,
                                        const v1::UnregisterRegionsRequest* request,
                                        v1::UnregisterRegionsResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kUnregisterRegions,
                                 absl::Milliseconds(kUnregisterDeadlineMs));
    if (call->finished()) return call->reactor();
    absl::StatusOr<UnregisterSpec> spec = ParseUnregister(*request);
    if (!spec.ok()) {
      call->Finish(spec.status());
      return call->reactor();
    }
    auto done = [this, call, response](const absl::StatusOr<UnregisterCounts>& counts) {
      if (!counts.ok()) return call->Finish(counts.status());
      response->set_server_epoch(core_.epoch);
      response->set_closed(counts->closed);
      response->set_already_gone(counts->already_gone);
      call->Finish(absl::OkStatus());
    };
    call->session()->memory().Unregister(*std::move(spec), MsUntil(call->deadline()),
                                         std::move(done));
    return call->reactor();
  }

  ServerUnaryReactor* ListRegions(CallbackServerContext* context,
                                  const v1::ListRegionsRequest* /*request*/,
                                  v1::ListRegionsResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kListRegions, kUsual);
    if (call->finished()) return call->reactor();
    SessionMemory& memory = call->session()->memory();
    FillListing(memory.ListRegions(), memory.ListCaches(), core_.epoch, *response);
    call->Finish(absl::OkStatus());
    return call->reactor();
  }

  RpcCore& core_;
};

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(RpcCore& core) : core_(core) {}

 private:
  ServerUnaryReactor* ProbeMemory(CallbackServerContext* context,
                                  const v1::ProbeMemoryRequest* request,
                                  v1::ProbeMemoryResponse* response) override {
    auto call = UnaryCall::Begin(core_, context, RpcMethod::kProbeMemory, kUsual);
    if (call->finished()) return call->reactor();
    const absl::StatusOr<ProbeSpec> spec = ParseProbe(*request);
    if (!spec.ok()) {
      call->Finish(spec.status());
      return call->reactor();
    }
    core_.prober.Probe(call->session(), *spec,
                       [this, call, response](const absl::StatusOr<ProbeResult>& result) {
                         if (!result.ok()) return call->Finish(result.status());
                         response->set_server_epoch(core_.epoch);
                         response->set_checksum(result->checksum);
                         response->set_microseconds(result->microseconds);
                         call->Finish(absl::OkStatus());
                       });
    return call->reactor();
  }

  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMemoryService(RpcCore& core) {
  return std::make_unique<MemoryService>(core);
}

std::unique_ptr<grpc::Service> MakeAdminService(RpcCore& core) {
  return std::make_unique<AdminService>(core);
}

}  // namespace kvtriage
