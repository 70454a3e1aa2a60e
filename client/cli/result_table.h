// The human-readable form of runs: a row per policy and ratio, and a strip per layer and head.
#ifndef KVTRIAGE_CLIENT_CLI_RESULT_TABLE_H_
#define KVTRIAGE_CLIENT_CLI_RESULT_TABLE_H_

#include <string>
#include <vector>

#include "client/cli/run_result.h"

namespace kvtriage::cli {

std::string TableHeader();
std::string TableRow(const PolicyRun& run);

// One line per layer and KV head, `cells` characters wide; equal lists of a layer are shown once.
std::string Strips(const PolicyRun& run, uint64_t cells);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_RESULT_TABLE_H_
