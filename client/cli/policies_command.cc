#include "client/cli/policies_command.h"

#include <vector>

#include "client/cli/ask_service.h"
#include "client/cli/policy_text.h"
#include "client/cli/text_table.h"

namespace kvtriage::cli {
namespace {

std::string Text(const client::ServerInfo& info, const std::string&) {
  std::vector<std::vector<std::string>> rows = {PolicyColumns()};
  for (const client::Policy& policy : info.policies) rows.push_back(PolicyCells(policy));
  return TextTable(rows);
}

std::string JsonText(const client::ServerInfo& info, const std::string&) {
  nlohmann::ordered_json json = {{"default_policy", info.default_policy}};
  json["policies"] = nlohmann::ordered_json::array();
  for (const client::Policy& policy : info.policies) json["policies"].push_back(PolicyJson(policy));
  return json.dump() + "\n";
}

}  // namespace

int PoliciesCommand(std::span<const std::string> arguments) {
  return AskService(
      {"policies", "every policy a service knows, in its parts, and where it was published", &Text,
       &JsonText},
      arguments);
}

}  // namespace kvtriage::cli
