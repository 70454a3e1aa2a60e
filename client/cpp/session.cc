#include "kvtriage/session.h"

#include <unistd.h>

#include <utility>

#include "client/cpp/blend_call.h"
#include "client/cpp/compress_call.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/keeper.h"
#include "client/cpp/layers_call.h"
#include "client/cpp/local_error.h"
#include "client/cpp/observe_call.h"
#include "client/cpp/recompute_proto.h"
#include "client/cpp/register_memory.h"
#include "client/cpp/retry.h"
#include "client/cpp/server_info_proto.h"
#include "kernels/core/mutex.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

constexpr uint64_t kLastUnregisterMs = 1000;

absl::Status BadArgument(std::string_view text) {
  return LocalError(absl::StatusCode::kInvalidArgument, "bad_argument", text);
}

absl::Status CheckAmount(const Policy& policy) {
  const std::optional<Budget>& budget = policy.parts.budget;
  if (!budget.has_value() || !budget->kept_tokens.has_value() || !budget->kept_ratio.has_value()) {
    return absl::OkStatus();
  }
  return BadArgument("a budget has kept_tokens or kept_ratio, not both");
}

}  // namespace

class Session::Impl {
 public:
  explicit Impl(const ConnectOptions& options) : options(options), keeper(options) {}

  // In a forked child gRPC's threads do not exist and any lock may be held: touch nothing.
  bool forked() const { return getpid() != pid; }

  absl::StatusOr<std::shared_ptr<Link>> Current() const {
    if (forked()) {
      return LocalError(absl::StatusCode::kFailedPrecondition, "forked",
                        "this session belongs to the parent process");
    }
    return keeper.Current();
  }

  // RunRerotate or RunFuse over the current link.
  template <typename Request, typename Run>
  RowsOutcome WriteRows(Run run, const Request& request, const CallOptions& call) {
    const absl::StatusOr<std::shared_ptr<Link>> link = Current();
    if (!link.ok()) return {Outcome::kUnavailable, link.status()};
    const CacheSpec cache = keeper.book().SpecOf(request.cache).value_or(CacheSpec());
    RowsOutcome outcome = run(**link, cache, request, call, settle());
    if (outcome.quarantine != 0) outcome.quarantine = keeper.Quarantine(*link);
    return outcome;
  }

  absl::Duration settle() const {
    return absl::Milliseconds(static_cast<int64_t>(options.settle_ms));
  }

  const pid_t pid = getpid();
  const ConnectOptions options;
  Keeper keeper;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  if (impl_->forked()) {
    (void)impl_.release();  // its threads are the parent's; joining them would hang
    return;
  }
  // What has an owner is not let go before the service has closed it.
  MemoryBook& book = impl_->keeper.book();
  if (book.HoldsOwners() && !UnregisterAll({.deadline_ms = kLastUnregisterMs}).ok()) {
    book.AbandonOwners();
  }
}

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const ConnectOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  KVTRIAGE_RETURN_IF_ERROR(impl->keeper.Start());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

bool Session::alive() const { return impl_->Current().ok(); }

SessionState Session::state() const {
  return impl_->forked() ? SessionState() : impl_->keeper.state();
}

bool Session::WaitAlive(uint64_t timeout_ms) const {
  if (impl_->forked()) return false;
  return impl_->keeper.WaitAlive(absl::Now() +
                                 absl::Milliseconds(static_cast<int64_t>(timeout_ms)));
}

absl::StatusOr<Registered> Session::Register(const Registration& what, const CallOptions& options) {
  if (what.regions.size() > kMaxRegionsPerCall)
    return BadArgument("more than 32 regions in one call");
  KVTRIAGE_RETURN_IF_ERROR(impl_->Current().status());
  Keeper& keeper = impl_->keeper;
  MutexLock registering(&keeper.registration_mutex());
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  KVTRIAGE_ASSIGN_OR_RETURN(Lot lot, keeper.book().Prepare(what.regions, what.caches));
  KVTRIAGE_RETURN_IF_ERROR(RegisterLot(*link, lot, true, options.retry, DeadlineOf(options)));
  Registered registered;
  for (const LentRegion& region : lot.regions) registered.regions.push_back(region.region);
  for (const LentCache& cache : lot.caches) registered.caches.push_back(cache.cache);
  keeper.book().Enter(std::move(lot));
  return registered;
}

namespace {

absl::Status UnregisterOverLink(Link& link, const Lot& lot, absl::Time deadline) {
  v1::UnregisterRegionsRequest request;
  for (const LentRegion& region : lot.regions)
    request.add_region_ids(link.ids().IdOf(region.region));
  for (const LentCache& cache : lot.caches) request.add_cache_ids(link.ids().IdOf(cache.cache));
  v1::UnregisterRegionsResponse response;
  return link.transport().Call(request, &response, deadline);
}

absl::Status UnregisterLot(Keeper& keeper, const std::vector<Region>& regions,
                           const std::vector<Cache>& caches, absl::Time deadline) {
  Lot lot;  // outlives the lock: owners that go with it may do as they like
  MutexLock registering(&keeper.registration_mutex());
  lot = keeper.book().Find(regions, caches);
  const absl::StatusOr<std::shared_ptr<Link>> link = keeper.Current();
  if (link.ok() && !(lot.regions.empty() && lot.caches.empty())) {
    const absl::Status status = UnregisterOverLink(**link, lot, deadline);
    if (!status.ok() && !(*link)->lost()) return status;
    for (const LentRegion& region : lot.regions) (*link)->ids().Remove(region.region);
    for (const LentCache& cache : lot.caches) (*link)->ids().Remove(cache.cache);
  }
  // A lost session closes its mappings by itself, after its last job.
  if (!keeper.WaitLostQuiet(deadline)) {
    return LocalError(absl::StatusCode::kDeadlineExceeded, "session_not_quiet",
                      "a lost session may still write into the memory");
  }
  keeper.book().Remove(regions, caches);  // and lets go of its owners
  return absl::OkStatus();
}

}  // namespace

absl::Status Session::Unregister(const std::vector<Region>& regions,
                                 const std::vector<Cache>& caches, const CallOptions& options) {
  if (impl_->forked()) return impl_->Current().status();
  return UnregisterLot(impl_->keeper, regions, caches, DeadlineOf(options));
}

absl::Status Session::UnregisterAll(const CallOptions& options) {
  if (impl_->forked()) return impl_->Current().status();
  std::vector<Region> regions;
  std::vector<Cache> caches;
  const Lot all = impl_->keeper.book().All();
  for (const LentRegion& region : all.regions) regions.push_back(region.region);
  for (const LentCache& cache : all.caches) caches.push_back(cache.cache);
  return UnregisterLot(impl_->keeper, regions, caches, DeadlineOf(options));
}

absl::StatusOr<MemoryList> Session::ListRegions(const CallOptions& options) const {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  v1::ListRegionsResponse response;
  KVTRIAGE_RETURN_IF_ERROR(
      link->transport().Call(v1::ListRegionsRequest(), &response, DeadlineOf(options)));
  return FromProto(response, link->ids());
}

CompressOutcome Session::Compress(const CompressRequest& request, const CallOptions& options) {
  const absl::StatusOr<std::shared_ptr<Link>> link = impl_->Current();
  if (!link.ok()) return WithoutEffect(request, Outcome::kUnavailable, link.status());
  if (absl::Status status = CheckAmount(request.policy); !status.ok()) {
    return WithoutEffect(request, Outcome::kUnchanged, std::move(status));
  }
  const CacheSpec cache = impl_->keeper.book().SpecOf(request.cache).value_or(CacheSpec());
  CompressOutcome outcome = RunCompress(**link, cache, request, options, impl_->settle());
  if (outcome.quarantine != 0) outcome.quarantine = impl_->keeper.Quarantine(*link);
  return outcome;
}

absl::StatusOr<std::unique_ptr<LayerStream>> Session::OpenLayers(const CompressRequest& request,
                                                                 const CallOptions& options) {
  KVTRIAGE_RETURN_IF_ERROR(CheckAmount(request.policy));
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  const CacheSpec cache = impl_->keeper.book().SpecOf(request.cache).value_or(CacheSpec());
  auto call = std::make_unique<LayersCall>(link, cache, request, options, impl_->settle(),
                                           [this, link] { return impl_->keeper.Quarantine(link); });
  KVTRIAGE_RETURN_IF_ERROR(call->Open());
  return std::unique_ptr<LayerStream>(new LayerStream(std::move(call)));
}

absl::StatusOr<RecomputeResult> Session::SelectRecompute(const RecomputeRequest& request,
                                                         const CallOptions& options) {
  if (request.ratio.has_value() && request.threshold.has_value()) {
    return BadArgument("an amount is a ratio or a threshold, not both");
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  v1::SelectRecomputeRequest message = ToProto(request, link->ids());
  message.mutable_header()->set_idempotency_key(std::string(AsBytes(NewKey())));
  v1::SelectRecomputeResponse response;
  const absl::Time deadline = DeadlineOf(options);
  KVTRIAGE_RETURN_IF_ERROR(WithRetry(options.retry, deadline, [&] {
    return link->transport().Call(message, &response, deadline);
  }));
  return FromProto(response);
}

RowsOutcome Session::Rerotate(const RerotateRequest& request, const CallOptions& options) {
  return impl_->WriteRows(RunRerotate, request, options);
}

RowsOutcome Session::Fuse(const FuseRequest& request, const CallOptions& options) {
  return impl_->WriteRows(RunFuse, request, options);
}

ObserveOutcome Session::Observe(const ObserveRequest& request, const CallOptions& options) {
  const absl::StatusOr<std::shared_ptr<Link>> link = impl_->Current();
  if (!link.ok()) return WithoutEffect(request, Outcome::kUnavailable, link.status());
  if (absl::Status status = CheckAmount(request.policy.value_or(Policy())); !status.ok()) {
    return WithoutEffect(request, Outcome::kUnchanged, std::move(status));
  }
  const CacheSpec cache = impl_->keeper.book().SpecOf(request.cache).value_or(CacheSpec());
  ObserveOutcome outcome = RunObserve(**link, cache, request, options, impl_->settle());
  if (outcome.quarantine != 0) outcome.quarantine = impl_->keeper.Quarantine(*link);
  return outcome;
}

absl::StatusOr<RewindResult> Session::Rewind(const RewindRequest& request,
                                             const CallOptions& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  return RunRewind(*link, request, options, impl_->settle());
}

absl::StatusOr<Released> Session::ReleaseSequences(const std::vector<uint64_t>& sequence_ids,
                                                   const CallOptions& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  v1::ReleaseSequenceRequest request;
  for (const uint64_t id : sequence_ids) request.add_sequence_ids(id);
  v1::ReleaseSequenceResponse response;
  KVTRIAGE_RETURN_IF_ERROR(link->transport().Call(request, &response, DeadlineOf(options)));
  return Released{response.released(), response.already_gone()};
}

namespace {

absl::StatusOr<uint64_t> Probe(Link& link, v1::ProbeMemoryRequest::Op op, Region region,
                               uint64_t offset, uint64_t length, uint64_t seed,
                               absl::Time deadline) {
  v1::ProbeMemoryRequest request;
  request.set_region_id(link.ids().IdOf(region));
  request.set_offset(offset);
  request.set_length(length);
  request.set_op(op);
  request.set_seed(seed);
  v1::ProbeMemoryResponse response;
  KVTRIAGE_RETURN_IF_ERROR(link.transport().Call(request, &response, deadline));
  return response.checksum();
}

}  // namespace

absl::StatusOr<uint64_t> Session::Checksum(Region region, uint64_t offset, uint64_t length,
                                           const CallOptions& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  return Probe(*link, v1::ProbeMemoryRequest::OP_CHECKSUM, region, offset, length, 0,
               DeadlineOf(options));
}

absl::StatusOr<uint64_t> Session::WritePattern(Region region, uint64_t offset, uint64_t length,
                                               uint64_t seed, const CallOptions& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  return Probe(*link, v1::ProbeMemoryRequest::OP_WRITE_PATTERN, region, offset, length, seed,
               DeadlineOf(options));
}

absl::StatusOr<ServerInfo> Session::GetServerInfo(const CallOptions& options) const {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, impl_->Current());
  v1::GetServerInfoResponse response;
  KVTRIAGE_RETURN_IF_ERROR(
      link->transport().Call(v1::GetServerInfoRequest(), &response, DeadlineOf(options)));
  return FromProto(response);
}

bool Session::Quiet(uint64_t quarantine) const {
  return !impl_->forked() && impl_->keeper.Quiet(quarantine);
}

}  // namespace kvtriage::client
