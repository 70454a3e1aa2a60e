#include "absl/strings/str_cat.h"
#include "service/app/config_keys.h"

namespace kvtriage {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string ConfigMarkdown() {
  std::string out =
      "# Configuration of kvtriaged\n\n"
      "Made from the table in `config_keys.cc`; the test `app_test` checks that it is fresh, and\n"
      "`KVTRIAGE_REWRITE=1` makes it rewrite this file.\n\n"
      "A key may be set by a flag (`--key=value`), an environment variable, or a line `key = "
      "value` "
      "of the file\nthat `--config=FILE` names; the earlier of these wins. The file has `#` "
      "comments, "
      "no sections, no quoting.\nAn unknown or repeated key or a bad value ends the start with "
      "exit "
      "code 2 before any socket is bound.\nSizes take `KiB`, `MiB`, `GiB`; times are in "
      "milliseconds. `kvtriaged --check-config` prints what holds.\n\n"
      "| key | environment | values | default | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const ConfigKey& key : ConfigKeys()) {
    absl::StrAppend(&out, "| `", Absl(key.name), "` | `", EnvironmentName(key.name), "` | ",
                    Absl(key.values), " | ", Absl(key.initial), " | ", Absl(key.meaning), " |\n");
  }
  return out;
}

std::string ConfigHelp() {
  std::string out;
  for (const ConfigKey& key : ConfigKeys()) {
    absl::StrAppend(&out, "  --", Absl(key.name), "=VALUE\n      ", Absl(key.meaning),
                    "\n      Values: ", Absl(key.values), ". Default: ", Absl(key.initial), ".\n");
  }
  return out;
}

}  // namespace kvtriage
