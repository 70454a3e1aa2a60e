// The machine-readable form of runs; client/cli/README.md documents it.
#ifndef KVTRIAGE_CLIENT_CLI_RESULT_JSON_H_
#define KVTRIAGE_CLIENT_CLI_RESULT_JSON_H_

#include <string>
#include <vector>

#include "client/cli/run_result.h"

namespace kvtriage::cli {

std::string RunsToJson(const std::vector<PolicyRun>& runs);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_RESULT_JSON_H_
