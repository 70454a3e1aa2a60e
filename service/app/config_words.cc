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
  absl::StrAppend(
      &out,
      "\n`policy.define.NAME = PARTS` defines a policy of your own (file or flag only, at most "
      "64). NAME is 1 "
      "to 32 of a-z,\n0-9 and `-`, and not one of ours; PARTS is a `PolicyParts` of `triage.proto` "
      "as protobuf "
      "text on one line, complete but for\nthe budget's amount, which comes with each request or "
      "from "
      "`policy.kept_ratio`. `kvtriage policies` shows it like the built-in\nones, and "
      "`policy.default` may "
      "name it:\n\n"
      "    policy.define.chat = scorer { obc { form: FORM_JOINT } } window { last: 32 } reduce { "
      "kind: KIND_SUM } "
      "pool { kind: KIND_MAX kernel: 7 } protect { sinks: 4 recent: 32 } budget { adaptive { "
      "alpha: 0.2 } } "
      "granularity: GRANULARITY_PER_HEAD\n"
      "\nFlags that are no keys:\n\n"
      "| flag | meaning |\n| --- | --- |\n"
      "| `--config=FILE` | read this file |\n"
      "| `--check-config` | print the configuration that would hold, as a file, and end |\n"
      "| `--exit-with-parent` | drain and end when the process that started the service ends; for "
      "private services such as the one that the command line tool starts |\n"
      "| `--version`, `--help` | print and end |\n\n"
      "Exit codes: 0 drained; 1 could not start or stop (a socket or port is taken, too few file "
      "descriptors, a shutdown\nthat hangs); 2 bad configuration or flags; 70 a CUDA device "
      "failed for good; 71 stuck\n(a job or an unmapping that does not end).\n");
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
