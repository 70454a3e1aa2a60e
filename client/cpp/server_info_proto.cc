#include "client/cpp/server_info_proto.h"

#include <algorithm>

#include "client/cpp/policy_proto.h"

namespace kvtriage::client {
namespace {

ServerLimits FromProto(const v1::Limits& limits) {
  ServerLimits out;
  out.max_request_bytes = limits.max_request_bytes();
  out.max_response_bytes = limits.max_response_bytes();
  out.max_regions = limits.max_regions();
  out.max_caches = limits.max_caches();
  out.max_sequences_per_call = limits.max_sequences_per_call();
  out.max_blocks_per_table = limits.max_blocks_per_table();
  out.max_in_flight = limits.max_in_flight();
  out.max_tracked_sequences = limits.max_tracked_sequences();
  out.max_state_bytes = limits.max_state_bytes();
  out.default_deadline_ms = limits.default_deadline_ms();
  out.max_deadline_ms = limits.max_deadline_ms();
  out.result_ttl_ms = limits.result_ttl_ms();
  return out;
}

std::string KindOf(const v1::Device& device) {
  if (device.kind() == v1::Device::KIND_CPU) return "cpu";
  return device.kind() == v1::Device::KIND_CUDA ? "cuda" : "unknown";
}

}  // namespace

ServerInfo FromProto(const v1::GetServerInfoResponse& response) {
  ServerInfo out;
  out.epoch = response.server_epoch();
  out.version = response.server_version();
  out.min_api_revision = response.min_api_revision();
  out.max_api_revision = response.max_api_revision();
  out.draining = response.draining();
  out.groups = std::find(response.features().begin(), response.features().end(),
                         v1::FEATURE_GROUPS) != response.features().end();
  out.limits = FromProto(response.limits());
  out.default_policy = response.default_policy();
  for (const v1::Device& device : response.devices()) {
    out.devices.push_back({KindOf(device), device.name(), device.memory_bytes(),
                           device.health() == v1::Device::HEALTH_OK, device.uuid()});
  }
  for (const v1::Policy& policy : response.policies()) out.policies.push_back(FromProto(policy));
  return out;
}

MemoryList FromProto(const v1::ListRegionsResponse& response, const MemoryIds& ids) {
  MemoryList out;
  for (const v1::ListRegionsResponse::Region& region : response.regions()) {
    out.regions.push_back({ids.RegionOf(region.region_id()), region.tag(), region.size(),
                           static_cast<Access>(region.access()), region.pins(), region.retiring()});
  }
  for (const v1::ListRegionsResponse::Cache& cache : response.caches()) {
    CacheStatus status;
    status.cache = ids.CacheOf(cache.cache_id());
    status.layers = cache.layers();
    for (const uint64_t id : cache.region_ids()) status.regions.push_back(ids.RegionOf(id));
    out.caches.push_back(std::move(status));
  }
  return out;
}

}  // namespace kvtriage::client
