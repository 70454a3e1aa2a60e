#include "client/cli/flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace kvtriage::cli {

absl::StatusOr<Flags> Flags::Parse(std::span<const FlagSpec> specs,
                                   std::span<const std::string> arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [&](const FlagSpec& s) { return s.name == name; });
    if (spec == specs.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": unknown argument; --help lists what there is"));
    }
    std::string value;
    if (spec->value.empty()) {
      if (equals != std::string::npos)
        return absl::InvalidArgumentError(absl::StrCat(name, ": takes no value"));
    } else if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": needs a value, ", std::string(spec->value)));
    }
    if (!flags.values_.emplace(name, value).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": given twice"));
    }
  }
  return flags;
}

std::optional<std::string> Flags::Get(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::string FlagHelp(std::span<const FlagSpec> specs) {
  std::string help;
  for (const FlagSpec& spec : specs) {
    const std::string left = absl::StrCat(std::string(spec.name), spec.value.empty() ? "" : " ",
                                          std::string(spec.value));
    absl::StrAppend(&help, absl::StrFormat("  %-28s %s\n", left, std::string(spec.help)));
  }
  return help;
}

std::vector<std::string> SplitList(std::string_view text) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), ',');
}

}  // namespace kvtriage::cli
