// One self-contained HTML page about runs: the table, error against budget for every policy, and
// where the kept tokens of each layer and head stand in the prompt. No external assets.
#ifndef KVTRIAGE_CLIENT_CLI_REPORT_HTML_H_
#define KVTRIAGE_CLIENT_CLI_REPORT_HTML_H_

#include <string>
#include <vector>

#include "client/cli/run_result.h"

namespace kvtriage::cli {

// `title` is plain text (the dump's file name and model).
std::string ReportHtml(const std::string& title, const std::vector<PolicyRun>& runs);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_REPORT_HTML_H_
