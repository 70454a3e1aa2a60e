// From the command line, the environment and the file to one Config. Pure, apart from reading the
// file.
#ifndef KVTRIAGE_SERVICE_APP_CONFIG_LOAD_H_
#define KVTRIAGE_SERVICE_APP_CONFIG_LOAD_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/app/config.h"

namespace kvtriage {

struct CommandLine {
  bool help = false, version = false, check_config = false, exit_with_parent = false;
  std::string config_file;  // empty: none
  std::string faults;       // --fault=...; builds with fault points only
  std::vector<std::pair<std::string, std::string>> keys;  // each at most once
};

// InvalidArgument with one line that names the flag.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// `name` is for errors only: "FILE:LINE: key 'x': expected ...". Sets keys in `config`.
absl::Status ParseConfigText(std::string_view name, std::string_view text, Config& config);

// Value of an environment variable, nothing when unset.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// File, then environment, then flags, then FinishConfig.
absl::StatusOr<Config> LoadConfig(const CommandLine& command_line, const Environment& environment);

// A configuration file with every key, sorted.
std::string PrintConfig(const Config& config);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_CONFIG_LOAD_H_
