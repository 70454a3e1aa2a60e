#include "service/app/run.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "service/app/config_keys.h"
#include "service/app/config_load.h"
#include "service/app/exit_codes.h"
#include "service/app/process_signals.h"
#include "service/app/service.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

constexpr char kUsage[] =
    "usage: kvtriaged [--config=FILE] [--KEY=VALUE]...\n"
    "\n"
    "Scores, selects and compacts KV caches that inference workers lend to it.\n"
    "\n"
    "  --config=FILE       lines KEY = VALUE; see CONFIG.md\n"
    "  --check-config      print the configuration that would hold, start nothing\n"
    "  --exit-with-parent  drain and end when the process that started this one ends\n"
    "  --version           print the version\n"
    "  --help              print this\n"
    "\n"
    "Keys (a flag wins over the environment variable KVTRIAGE_KEY, that over the file):\n";

constexpr char kExitCodes[] =
    "\nExit codes: 0 drained, 1 could not start or stop, 2 bad configuration or flags,\n"
    "70 a CUDA device failed for good, 71 stuck (a job or an unmapping that does not end).\n";

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "kvtriaged: %s\n", std::string(status.message()).c_str());
  return code;
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

int Serve(const CommandLine& line, const Config& config) {
  SetUpSignals();
#ifdef KVTRIAGE_FAULT_POINTS
  if (absl::Status status = SetFaults(line.faults); !status.ok()) {
    return Fail(status, kExitBadConfig);
  }
#endif
  if (line.exit_with_parent && !StopWithParent()) return kExitDrained;
  absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(config);
  if (!service.ok()) {
    const bool bad_config = service.status().code() == absl::StatusCode::kInvalidArgument;
    return Fail(service.status(), bad_config ? kExitBadConfig : kExitFailed);
  }
  return (*service)->RunUntilStopped();
}

}  // namespace

int RunKvtriaged(const std::vector<std::string>& arguments) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return Fail(line.status(), kExitBadConfig);
  if (line->help) {
    std::fputs(absl::StrCat(kUsage, ConfigHelp(), kExitCodes).c_str(), stdout);
    return 0;
  }
  if (line->version) {
    std::puts("kvtriaged " KVTRIAGE_VERSION);
    return 0;
  }
  const absl::StatusOr<Config> config = LoadConfig(*line, &FromEnvironment);
  if (!config.ok()) return Fail(config.status(), kExitBadConfig);
  if (line->check_config) {
    std::fputs(PrintConfig(*config).c_str(), stdout);
    return 0;
  }
  return Serve(*line, *config);
}

}  // namespace kvtriage
