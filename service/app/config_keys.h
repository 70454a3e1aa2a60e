// The one table of configuration keys. It drives the file, the flags, the environment, --help,
// --check-config and CONFIG.md.
#ifndef KVTRIAGE_SERVICE_APP_CONFIG_KEYS_H_
#define KVTRIAGE_SERVICE_APP_CONFIG_KEYS_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "service/app/config.h"

namespace kvtriage {

struct ConfigKey {
  std::string_view name;     // "listen.uds"
  std::string_view values;   // what may be given, for people
  std::string_view initial;  // the default, for people
  std::string_view meaning;
  absl::Status (*set)(std::string_view text, Config& config);
  std::string (*print)(const Config& config);  // `set` of it gives the same value
  bool is_switch = false;                      // the bare flag means true
};

std::span<const ConfigKey> ConfigKeys();
const ConfigKey* FindConfigKey(std::string_view name);  // null: unknown

// "KVTRIAGE_LISTEN_UDS" for "listen.uds".
std::string EnvironmentName(std::string_view key);

// Fills what depends on other values or on this process, and checks keys against each other.
absl::Status FinishConfig(Config& config);

std::string ConfigMarkdown();  // CONFIG.md
std::string ConfigHelp();      // the part of --help about keys

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_CONFIG_KEYS_H_
