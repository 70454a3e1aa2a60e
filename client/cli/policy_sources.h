// Where the ideas behind the built-in policies were published.
#ifndef KVTRIAGE_CLIENT_CLI_POLICY_SOURCES_H_
#define KVTRIAGE_CLIENT_CLI_POLICY_SOURCES_H_

#include <string>
#include <string_view>

namespace kvtriage::cli {

// "SnapKV, arXiv 2404.14469"; of a variant the scorer's and the base's. "this service's
// configuration" for a name that is not built in.
std::string PolicySource(std::string_view name);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_POLICY_SOURCES_H_
