#include "service/rpc/server_info.h"

#include <unistd.h>

#include <string>

#include "service/validate/policy_proto.h"

namespace kvtriage {

v1::Limits LimitsMessage(const Limits& limits) {
  v1::Limits message;
  message.set_max_request_bytes(limits.max_request_bytes);
  message.set_max_response_bytes(kMaxResponseBytes);
  message.set_max_regions(limits.max_regions);
  message.set_max_caches(limits.max_caches);
  message.set_max_sequences_per_call(kMaxSequencesPerCall);
  message.set_max_blocks_per_table(kMaxBlocksPerTable);
  message.set_max_in_flight(limits.max_in_flight);
  message.set_max_tracked_sequences(limits.max_tracked_sequences);
  message.set_max_state_bytes(limits.max_score_bytes);
  message.set_default_deadline_ms(kDefaultDeadlineMs);
  message.set_max_deadline_ms(kMaxDeadlineMs);
  message.set_result_ttl_ms(limits.result_ttl_ms);
  return message;
}

v1::Device DeviceMessage(bool sick) {
  v1::Device device;
  device.set_kind(v1::Device::KIND_CPU);
  device.set_name("cpu");
  device.set_memory_bytes(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  device.set_health(sick ? v1::Device::HEALTH_SICK : v1::Device::HEALTH_OK);
  return device;
}

v1::Device DeviceMessage(const DeviceFacts& facts, bool sick) {
  v1::Device device;
  device.set_kind(v1::Device::KIND_CUDA);
  device.set_uuid(facts.uuid);
  device.set_name(facts.name);
  device.set_compute_capability(facts.compute_capability);
  device.set_memory_bytes(facts.memory_bytes);
  device.set_health(sick ? v1::Device::HEALTH_SICK : v1::Device::HEALTH_OK);
  device.set_cuda_driver_version(facts.driver_version);
  return device;
}

namespace {

// Of a Welcome or a GetServerInfoResponse.
template <class Message>
void FillDevices(const RpcCore& core, Message& message) {
  *message.add_devices() = DeviceMessage(core.sick);
  for (DeviceIndex i = 1; i <= core.devices.size(); ++i) {
    *message.add_devices() = DeviceMessage(core.devices.at(i).facts(), core.sick);
  }
  if (core.devices.size() > 0) message.add_features(v1::FEATURE_CUDA);
  message.add_features(v1::FEATURE_GROUPS);
}

}  // namespace

void FillWelcome(const RpcCore& core, const Session& session, uint32_t api_revision,
                 v1::Welcome& welcome) {
  welcome.set_server_epoch(core.epoch);
  welcome.set_session_id(session.id());
  welcome.set_session_token(session.token().data(), session.token().size());
  welcome.set_api_revision(api_revision);
  welcome.set_server_version(KVTRIAGE_VERSION);
  welcome.set_fd_socket_name(core.fd_socket_name);
  welcome.set_ledger_bytes(core.limits.ledger_bytes);
  welcome.set_ledger_slots(core.limits.max_in_flight);
  *welcome.mutable_limits() = LimitsMessage(core.limits);
  FillDevices(core, welcome);
}

void FillServerInfo(const RpcCore& core, v1::GetServerInfoResponse& response) {
  response.set_server_epoch(core.epoch);
  response.set_server_version(KVTRIAGE_VERSION);
  response.set_min_api_revision(kApiRevision);
  response.set_max_api_revision(kApiRevision);
  FillDevices(core, response);
  *response.mutable_limits() = LimitsMessage(core.limits);
  for (v1::Policy& policy : KnownPolicies(core.policy)) {
    *response.add_policies() = std::move(policy);
  }
  response.set_default_policy(core.policy.name);
  response.set_draining(core.draining);
}

}  // namespace kvtriage
