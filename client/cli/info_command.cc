#include "client/cli/info_command.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/ask_service.h"
#include "client/cli/text_table.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

using client::ServerInfo;

// Sizes, counts and times of the limits under the names of the API.
std::vector<std::pair<std::string, uint32_t>> LimitsOf(const client::ServerLimits& limits) {
  return {
      {"max_request_bytes", limits.max_request_bytes},
      {"max_response_bytes", limits.max_response_bytes},
      {"max_regions", limits.max_regions},
      {"max_caches", limits.max_caches},
      {"max_sequences_per_call", limits.max_sequences_per_call},
      {"max_blocks_per_table", limits.max_blocks_per_table},
      {"max_in_flight", limits.max_in_flight},
      {"max_tracked_sequences", limits.max_tracked_sequences},
      {"default_deadline_ms", limits.default_deadline_ms},
      {"max_deadline_ms", limits.max_deadline_ms},
      {"result_ttl_ms", limits.result_ttl_ms},
  };
}

std::string EpochText(const ServerInfo& info) { return absl::StrFormat("%016x", info.epoch); }

std::string Text(const ServerInfo& info, const std::string& endpoint) {
  std::vector<std::vector<std::string>> rows = {
      {"endpoint", endpoint},
      {"version", info.version},
      {"epoch", EpochText(info)},
      {"api revisions", absl::StrCat(info.min_api_revision, " to ", info.max_api_revision)},
      {"takes new work", info.draining ? "no, it is draining" : "yes"},
      {"groups of ranks", info.groups ? "yes" : "no"},
      {"default policy", info.default_policy.empty() ? "none" : info.default_policy},
      {"policies", absl::StrCat(info.policies.size(), " (kvtriage policies)")},
  };
  for (const client::ServerDevice& device : info.devices) {
    rows.push_back(
        {"device", absl::StrCat(device.kind, ", ", device.name, ", ", device.memory_bytes >> 20,
                                " MiB, ", device.healthy ? "healthy" : "sick",
                                device.uuid.empty() ? "" : ", ", device.uuid)});
  }
  for (const auto& [name, value] : LimitsOf(info.limits))
    rows.push_back({name, absl::StrCat(value)});
  return TextTable(rows);
}

std::string JsonText(const ServerInfo& info, const std::string& endpoint) {
  using Json = nlohmann::ordered_json;
  Json json = {{"endpoint", endpoint},
               {"version", info.version},
               {"epoch", EpochText(info)},  // as text: 64 bits do not survive every JSON reader
               {"min_api_revision", info.min_api_revision},
               {"max_api_revision", info.max_api_revision},
               {"draining", info.draining},
               {"groups", info.groups},
               {"default_policy", info.default_policy}};
  json["devices"] = Json::array();
  for (const client::ServerDevice& device : info.devices) {
    json["devices"].push_back({{"kind", device.kind},
                               {"name", device.name},
                               {"memory_bytes", device.memory_bytes},
                               {"healthy", device.healthy},
                               {"uuid", device.uuid}});
  }
  for (const auto& [name, value] : LimitsOf(info.limits)) json["limits"][name] = value;
  return json.dump() + "\n";
}

}  // namespace

int InfoCommand(std::span<const std::string> arguments) {
  return AskService({"info", "what a service is: version, devices, limits", &Text, &JsonText},
                    arguments);
}

}  // namespace kvtriage::cli
