#include "client/cli/compress_command.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/connect.h"
#include "client/cli/dump.h"
#include "client/cli/flags.h"
#include "client/cli/lent_cache.h"
#include "client/cli/policy_runs.h"
#include "client/cli/progress.h"
#include "client/cli/report_html.h"
#include "client/cli/result_json.h"
#include "client/cli/result_table.h"
#include "kernels/core/status_macros.h"

namespace kvtriage::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"--dump", "FILE", "saved cache to score, .safetensors (required)"},
    {"--policy", "NAME[,NAME...]", "policies to run; `kvtriage policies` lists them (required)"},
    {"--keep", "R[,R...]", "shares of the tokens to keep, 0 < R <= 1 (required)"},
    {"--column-sums", "all", "score attention and VATP policies from the dump's colsum_all"},
    {"--json", "", "print the runs as JSON"},
    {"--no-strips", "", "print the table without the strips"},
    {"--report", "FILE", "also write one self-contained HTML page"},
    {"--endpoint", "PATH", "the service's socket; else the default one, else a private service"},
    {"--help", "", "this text"},
};
constexpr uint64_t kStripCells = 64;

struct Keep {
  double ratio = 0;
  std::string text;
};

struct Options {
  std::string dump;
  std::vector<std::string> policies;
  std::vector<Keep> keeps;
  bool column_sums = false, json = false, strips = true;
  std::optional<std::string> report, endpoint;
};

absl::StatusOr<std::vector<Keep>> ParseKeeps(const std::string& text) {
  std::vector<Keep> keeps;
  for (const std::string& part : SplitList(text)) {
    Keep keep{0, part};
    // Written so that NaN is refused too.
    if (!absl::SimpleAtod(part, &keep.ratio) || !(keep.ratio > 0 && keep.ratio <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--keep: ", part, " is not a number above 0 and at most 1"));
    }
    keeps.push_back(std::move(keep));
  }
  return keeps;
}

absl::StatusOr<Options> ParseOptions(const Flags& flags) {
  Options options;
  for (const char* required : {"--dump", "--policy", "--keep"}) {
    if (!flags.Has(required))
      return absl::InvalidArgumentError(absl::StrCat(required, ": required"));
  }
  options.dump = *flags.Get("--dump");
  options.policies = SplitList(*flags.Get("--policy"));
  KVTRIAGE_ASSIGN_OR_RETURN(options.keeps, ParseKeeps(*flags.Get("--keep")));
  const auto sums = flags.Get("--column-sums");
  if (sums && *sums != "all") return absl::InvalidArgumentError("--column-sums: must be `all`");
  options.column_sums = sums.has_value();
  options.json = flags.Has("--json");
  options.strips = !flags.Has("--no-strips");
  options.report = flags.Get("--report");
  options.endpoint = flags.Get("--endpoint");
  return options;
}

absl::Status WriteReport(const std::string& path, const Dump& dump,
                         const std::vector<PolicyRun>& runs) {
  const std::string title =
      absl::StrCat(dump.file().path(), dump.model().empty() ? "" : ", ", dump.model());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << ReportHtml(title, runs);
  out.close();
  if (!out) return absl::UnknownError(absl::StrCat("--report: can't write ", path));
  return absl::OkStatus();
}

absl::Status RunAll(const Options& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const Dump dump, Dump::Open(options.dump));
  if (dump.kind() != DumpKind::kCache) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.dump,
                     ": metadata kind: expected cache (`kvtriage hkvd` "
                     "reads blend dumps)"));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(Connection connection, Connect(options.endpoint));
  KVTRIAGE_ASSIGN_OR_RETURN(const client::ServerInfo server, connection.session->GetServerInfo());
  KVTRIAGE_ASSIGN_OR_RETURN(const auto lent, LentCache::Lend(*connection.session, dump));
  PolicyRunner runner(*connection.session, server, dump, *lent, options.column_sums);
  for (const std::string& policy : options.policies) KVTRIAGE_RETURN_IF_ERROR(runner.Check(policy));

  std::vector<PolicyRun> runs;
  if (!options.json) std::cout << TableHeader() << std::flush;
  {
    Progress progress(options.policies.size() * options.keeps.size());
    for (const std::string& policy : options.policies) {
      for (const Keep& keep : options.keeps) {
        progress.Show(runs.size(), absl::StrCat(policy, " at ", keep.text));
        KVTRIAGE_ASSIGN_OR_RETURN(PolicyRun run, runner.Run(policy, keep.ratio, keep.text));
        runs.push_back(std::move(run));
      }
    }
  }
  if (options.json) {
    std::cout << RunsToJson(runs) << "\n";
  } else {
    for (const PolicyRun& run : runs) std::cout << TableRow(run);
    for (const PolicyRun& run : runs) {
      if (options.strips) std::cout << "\n" << Strips(run, kStripCells);
    }
  }
  if (options.report) KVTRIAGE_RETURN_IF_ERROR(WriteReport(*options.report, dump, runs));
  return absl::OkStatus();
}

}  // namespace

int CompressCommand(std::span<const std::string> arguments) {
  const absl::StatusOr<Flags> flags = Flags::Parse(kFlags, arguments);
  if (flags.ok() && flags->Has("--help")) {
    std::cout
        << "kvtriage compress: scores a saved cache under policies and shows what each keeps\n"
        << FlagHelp(kFlags);
    return 0;
  }
  const absl::StatusOr<Options> options = flags.ok() ? ParseOptions(*flags) : flags.status();
  if (!options.ok()) {
    std::cerr << "kvtriage compress: " << options.status().message() << "\n";
    return 2;
  }
  if (const absl::Status status = RunAll(*options); !status.ok()) {
    std::cerr << "kvtriage compress: " << status.message() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace kvtriage::cli
