#include "service/app/config_load.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/core/status_macros.h"
#include "service/app/config_keys.h"
#include "service/validate/policy_definition.h"

namespace kvtriage {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

constexpr std::string_view kDefineKey = "policy.define.";

// A flag may define anew what the file has defined.
absl::Status DefinePolicy(std::string_view name, std::string_view text, Config& config) {
  if (!IsOwnPolicyName(name)) {
    return absl::InvalidArgumentError(
        "expected a name of 1 to 32 of a-z, 0-9 and -, and not one of ours");
  }
  KVTRIAGE_ASSIGN_OR_RETURN(PolicySpec policy, ParsePolicyDefinition(name, text));
  std::vector<PolicySpec>& defined = config.policy.defined;
  std::erase_if(defined, [&](const PolicySpec& other) { return other.name == name; });
  if (defined.size() >= kMaxDefinedPolicies) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", kMaxDefinedPolicies, " policies of your own"));
  }
  const auto place = std::find_if(defined.begin(), defined.end(),
                                  [&](const PolicySpec& other) { return other.name > name; });
  defined.insert(place, std::move(policy));
  return absl::OkStatus();
}

absl::Status Set(std::string_view where, std::string_view name, std::string_view value,
                 Config& config) {
  const ConfigKey* key = FindConfigKey(name);
  const bool defines = name.starts_with(kDefineKey);
  if (key == nullptr && !defines) {
    return absl::InvalidArgumentError(absl::StrCat(Absl(where), "key '", Absl(name), "': unknown"));
  }
  const absl::Status status = defines ? DefinePolicy(name.substr(kDefineKey.size()), value, config)
                                      : key->set(value, config);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(
      Absl(where), "key '", Absl(name), "': ", status.message(), ", got '", Absl(value), "'"));
}

absl::StatusOr<std::string> ReadFile(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": cannot be read"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": larger than 1 MiB"));
  }
  return text;
}

}  // namespace

absl::Status ParseConfigText(std::string_view name, std::string_view text, Config& config) {
  std::set<std::string> seen;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(Absl(text), '\n')) {
    const std::string where = absl::StrCat(Absl(name), ":", ++number, ": ");
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(where, "expected key = value"));
    }
    const std::string key(absl::StripAsciiWhitespace(line.substr(0, equals)));
    const std::string value(absl::StripAsciiWhitespace(line.substr(equals + 1)));
    KVTRIAGE_RETURN_IF_ERROR(Set(where, key, value, config));
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, "key '", key, "': given twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> LoadConfig(const CommandLine& command_line, const Environment& environment) {
  Config config;
  if (!command_line.config_file.empty()) {
    KVTRIAGE_ASSIGN_OR_RETURN(const std::string text, ReadFile(command_line.config_file));
    KVTRIAGE_RETURN_IF_ERROR(ParseConfigText(command_line.config_file, text, config));
  }
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string name = EnvironmentName(key.name);
    if (const std::optional<std::string> value = environment(name); value.has_value()) {
      KVTRIAGE_RETURN_IF_ERROR(Set(absl::StrCat(name, ": "), key.name, *value, config));
    }
  }
  for (const auto& [key, value] : command_line.keys) {
    KVTRIAGE_RETURN_IF_ERROR(Set("", key, value, config));
  }
  KVTRIAGE_RETURN_IF_ERROR(FinishConfig(config));
  return config;
}

std::string PrintConfig(const Config& config) {
  std::vector<std::string> lines;
  for (const ConfigKey& key : ConfigKeys()) {
    lines.push_back(absl::StrCat(Absl(key.name), " = ", key.print(config), "\n"));
  }
  for (const PolicySpec& own : config.policy.defined) {
    lines.push_back(
        absl::StrCat(Absl(kDefineKey), own.name, " = ", PolicyDefinitionText(own), "\n"));
  }
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const std::string& line : lines) out += line;
  return out;
}

}  // namespace kvtriage
