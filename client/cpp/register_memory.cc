#include "client/cpp/register_memory.h"

#include <algorithm>
#include <utility>

#include "client/cpp/cache_to_proto.h"
#include "client/cpp/idempotency_key.h"
#include "client/cpp/local_error.h"
#include "client/cpp/retry.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::client {
namespace {

constexpr absl::Duration kResolveTime = absl::Seconds(5);

// One for each region; 0 for device memory, which needs none.
absl::StatusOr<std::vector<uint64_t>> TicketsFor(Link& link, const Lot& lot) {
  std::vector<int> fds;
  std::vector<size_t> places;
  for (size_t i = 0; i < lot.regions.size(); ++i) {
    if (lot.regions[i].spec.cuda.has_value()) continue;
    fds.push_back(lot.regions[i].spec.fd);
    places.push_back(i);
  }
  std::vector<uint64_t> tickets(lot.regions.size());
  if (fds.empty()) return tickets;
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<uint64_t> given, link.Offer(fds));
  for (size_t i = 0; i < places.size(); ++i) tickets[places[i]] = given[i];
  return tickets;
}

absl::StatusOr<v1::RegisterRegionsRequest> RequestOf(Link& link, const Lot& lot, bool first) {
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<uint64_t> tickets, TicketsFor(link, lot));
  v1::RegisterRegionsRequest request;
  request.mutable_header()->set_idempotency_key(std::string(AsBytes(NewKey())));
  for (size_t i = 0; i < lot.regions.size(); ++i) {
    *request.add_regions() = ToProto(lot.regions[i].spec, tickets[i], first);
  }
  for (const LentCache& cache : lot.caches) {
    *request.add_caches()->mutable_spec() = ToProto(cache.spec, link.ids());
  }
  return request;
}

}  // namespace

absl::Status RegisterLot(Link& link, const Lot& lot, bool first, bool retry, absl::Time deadline) {
  KVTRIAGE_ASSIGN_OR_RETURN(v1::RegisterRegionsRequest request, RequestOf(link, lot, first));
  v1::RegisterRegionsResponse response;
  absl::Status status = WithRetry(
      retry, deadline, [&] { return link.transport().Call(request, &response, deadline); });
  if (!status.ok() && !GetErrorDetails(status).has_value() && !link.lost()) {
    // Cut off: it may have been done all the same.
    request.mutable_header()->set_resolve(true);
    if (link.transport().Call(request, &response, absl::Now() + kResolveTime).ok())
      status = absl::OkStatus();
  }
  KVTRIAGE_RETURN_IF_ERROR(status);
  if (static_cast<size_t>(response.region_ids_size()) != lot.regions.size() ||
      static_cast<size_t>(response.cache_ids_size()) != lot.caches.size()) {
    return LocalError(absl::StatusCode::kInternal, "bad_answer",
                      "another number of ids than asked for");
  }
  for (size_t i = 0; i < lot.regions.size(); ++i) {
    link.ids().Set(lot.regions[i].region, response.region_ids(static_cast<int>(i)));
  }
  for (size_t i = 0; i < lot.caches.size(); ++i) {
    link.ids().Set(lot.caches[i].cache, response.cache_ids(static_cast<int>(i)));
  }
  return absl::OkStatus();
}

absl::Status RegisterAll(Link& link, const Lot& all, absl::Time deadline) {
  for (size_t begin = 0; begin < all.regions.size(); begin += kMaxRegionsPerCall) {
    const size_t end = std::min(begin + kMaxRegionsPerCall, all.regions.size());
    Lot part;
    part.regions.assign(all.regions.begin() + static_cast<int64_t>(begin),
                        all.regions.begin() + static_cast<int64_t>(end));
    KVTRIAGE_RETURN_IF_ERROR(RegisterLot(link, part, false, true, deadline));
  }
  for (const LentCache& cache : all.caches) {
    KVTRIAGE_RETURN_IF_ERROR(RegisterLot(link, Lot{{}, {cache}}, false, true, deadline));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage::client
