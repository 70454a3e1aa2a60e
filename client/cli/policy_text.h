// Policies in words, for people and as JSON.
#ifndef KVTRIAGE_CLIENT_CLI_POLICY_TEXT_H_
#define KVTRIAGE_CLIENT_CLI_POLICY_TEXT_H_

#include <string>
#include <vector>

#include "kvtriage/policy.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {

// Heads of the columns, and a policy in them. "-": a part the scorer cannot use.
std::vector<std::string> PolicyColumns();
std::vector<std::string> PolicyCells(const client::Policy& policy);

// Absent parts are null.
nlohmann::ordered_json PolicyJson(const client::Policy& policy);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_POLICY_TEXT_H_
