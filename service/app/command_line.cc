#include <algorithm>

#include "absl/strings/str_cat.h"
#include "service/app/config_keys.h"
#include "service/app/config_load.h"

namespace kvtriage {
namespace {

absl::Status FlagError(const std::string& flag, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("flag '", flag, "': ", std::string(what), " (see --help)"));
}

// Flags that are no keys. False: not one of them.
bool TakePlainFlag(const std::string& name, CommandLine& line) {
  bool* const target = name == "help"               ? &line.help
                       : name == "version"          ? &line.version
                       : name == "check-config"     ? &line.check_config
                       : name == "exit-with-parent" ? &line.exit_with_parent
                                                    : nullptr;
  if (target != nullptr) *target = true;
  return target != nullptr;
}

absl::Status TakeFlag(const std::string& flag, CommandLine& line) {
  if (!flag.starts_with("--") || flag.size() == 2) return FlagError(flag, "not a flag");
  const size_t equals = flag.find('=');
  const bool has_value = equals != std::string::npos;
  const std::string name = flag.substr(2, has_value ? equals - 2 : std::string::npos);
  const std::string value = has_value ? flag.substr(equals + 1) : "";
  if (!has_value && TakePlainFlag(name, line)) return absl::OkStatus();
  if (name == "config" && has_value && !value.empty()) {
    line.config_file = value;
    return absl::OkStatus();
  }
#ifdef KVTRIAGE_FAULT_POINTS
  if (name == "fault" && has_value) {
    absl::StrAppend(&line.faults, line.faults.empty() ? "" : ",", value);
    return absl::OkStatus();
  }
#endif
  const ConfigKey* key = FindConfigKey(name);
  if (key == nullptr) return FlagError(absl::StrCat("--", name), "unknown");
  if (!has_value && !key->is_switch) return FlagError(absl::StrCat("--", name), "needs =VALUE");
  const bool repeated = std::any_of(line.keys.begin(), line.keys.end(),
                                    [&](const auto& given) { return given.first == name; });
  if (repeated) return FlagError(absl::StrCat("--", name), "given twice");
  line.keys.emplace_back(name, has_value ? value : "true");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  for (const std::string& argument : arguments) {
    if (absl::Status status = TakeFlag(argument, line); !status.ok()) return status;
  }
  return line;
}

}  // namespace kvtriage
