// Command-line flags of one command: `--name value`, `--name=value`, and switches without a value.
#ifndef KVTRIAGE_CLIENT_CLI_FLAGS_H_
#define KVTRIAGE_CLIENT_CLI_FLAGS_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvtriage::cli {

struct FlagSpec {
  std::string_view name;   // "--dump"
  std::string_view value;  // placeholder of the value ("FILE"); empty for a switch
  std::string_view help;
};

class Flags {
 public:
  // An unknown flag, a missing or unexpected value, a flag given twice or a stray word is an error.
  static absl::StatusOr<Flags> Parse(std::span<const FlagSpec> specs,
                                     std::span<const std::string> arguments);

  bool Has(std::string_view name) const { return values_.contains(name); }
  std::optional<std::string> Get(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// "  --dump FILE   help", a line per flag.
std::string FlagHelp(std::span<const FlagSpec> specs);

// "a,b,c" in its parts; an empty part is kept.
std::vector<std::string> SplitList(std::string_view text);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_FLAGS_H_
