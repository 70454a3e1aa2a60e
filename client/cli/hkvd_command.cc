#include "client/cli/hkvd_command.h"

#include <iostream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/connect.h"
#include "client/cli/dump.h"
#include "client/cli/flags.h"
#include "client/cli/hkvd_run.h"
#include "client/cli/token_strip.h"
#include "kernels/core/status_macros.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"--dump", "FILE", "blend dump, .safetensors (required)"},
    {"--layer", "L", "the model's layer number, one of the dump's (required)"},
    {"--ratio", "R", "share of the reused rows to recompute, 0..1 (required)"},
    {"--metric", "v|relative",
     "squared difference of V, or the same relative to the old V (required)"},
    {"--prefix", "N", "first rows that are an exact prefix hit (default 0)"},
    {"--json", "", "print JSON"},
    {"--endpoint", "PATH", "the service's socket; else the default one, else a private service"},
    {"--help", "", "this text"},
};
constexpr uint64_t kStripCells = 64;

struct Options {
  std::string dump;
  uint32_t layer = 0, prefix = 0;
  double ratio = 0;
  client::DivergenceMetric metric = client::DivergenceMetric::kUnspecified;
  bool json = false;
  std::optional<std::string> endpoint;
};

absl::StatusOr<client::DivergenceMetric> ParseMetric(const std::string& text) {
  if (text == "v") return client::DivergenceMetric::kVL2;
  if (text == "relative") return client::DivergenceMetric::kVRelative;
  if (text == "k") {
    return absl::UnimplementedError(
        "--metric: k needs keys at the new positions, which can't be re-rotated yet; use v");
  }
  return absl::InvalidArgumentError("--metric: must be v or relative");
}

absl::StatusOr<Options> ParseOptions(const Flags& flags) {
  Options options;
  for (const char* required : {"--dump", "--layer", "--ratio", "--metric"}) {
    if (!flags.Has(required))
      return absl::InvalidArgumentError(absl::StrCat(required, ": required"));
  }
  options.dump = *flags.Get("--dump");
  if (!absl::SimpleAtoi(*flags.Get("--layer"), &options.layer)) {
    return absl::InvalidArgumentError("--layer: must be a layer number");
  }
  // Written so that NaN is refused too.
  if (!absl::SimpleAtod(*flags.Get("--ratio"), &options.ratio) ||
      !(options.ratio >= 0 && options.ratio <= 1)) {
    return absl::InvalidArgumentError("--ratio: must be a number from 0 to 1");
  }
  KVTRIAGE_ASSIGN_OR_RETURN(options.metric, ParseMetric(*flags.Get("--metric")));
  const auto prefix = flags.Get("--prefix");
  if (prefix && !absl::SimpleAtoi(*prefix, &options.prefix)) {
    return absl::InvalidArgumentError("--prefix: must be a number of rows");
  }
  options.json = flags.Has("--json");
  options.endpoint = flags.Get("--endpoint");
  return options;
}

void Print(const HkvdRun& run, double ratio) {
  std::cout << absl::StrFormat(
      "layer %u: %d of %d rows to recompute (%d must, %d HKVD at %g %%), which carry %.1f %% of "
      "the divergence\n",
      run.layer, run.all.size(), run.rows, run.must.size(), run.hkvd.size(), ratio * 100,
      run.divergence_share * 100);
  std::cout << "  |" << StripText(KeptShares(run.all, run.rows, kStripCells)) << "|\n";
}

absl::Status Run(const Options& options) {
  KVTRIAGE_ASSIGN_OR_RETURN(const Dump dump, Dump::Open(options.dump));
  if (dump.kind() != DumpKind::kBlend) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.dump, ": metadata kind: expected blend"));
  }
  const BlendLayer* layer = nullptr;
  for (const BlendLayer& candidate : dump.blend_layers()) {
    if (candidate.layer == options.layer) layer = &candidate;
  }
  if (layer == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--layer: ", options.dump, " has no layer ", options.layer));
  }
  if (options.prefix > layer->reused_v.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("--prefix: ", options.prefix,
                                                   ", but the dump reuses only ",
                                                   layer->reused_v.rows(), " rows"));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(Connection connection, Connect(options.endpoint));
  KVTRIAGE_ASSIGN_OR_RETURN(const LentBlendLayer lent,
                            LentBlendLayer::Lend(*connection.session, dump, *layer));
  KVTRIAGE_ASSIGN_OR_RETURN(const HkvdRun run, lent.Select(*connection.session, options.metric,
                                                           options.ratio, options.prefix));
  if (options.json) {
    const nlohmann::ordered_json json = {{"layer", run.layer},
                                         {"must", run.must},
                                         {"hkvd", run.hkvd},
                                         {"rows", run.all},
                                         {"divergence_share", run.divergence_share}};
    std::cout << json.dump() << "\n";
  } else {
    Print(run, options.ratio);
  }
  return absl::OkStatus();
}

}  // namespace

int HkvdCommand(std::span<const std::string> arguments) {
  const absl::StatusOr<Flags> flags = Flags::Parse(kFlags, arguments);
  if (flags.ok() && flags->Has("--help")) {
    std::cout << "kvtriage hkvd: which rows of reused chunks to recompute (CacheBlend)\n"
              << FlagHelp(kFlags);
    return 0;
  }
  const absl::StatusOr<Options> options = flags.ok() ? ParseOptions(*flags) : flags.status();
  if (!options.ok()) {
    std::cerr << "kvtriage hkvd: " << options.status().message() << "\n";
    return 2;
  }
  if (const absl::Status status = Run(*options); !status.ok()) {
    std::cerr << "kvtriage hkvd: " << status.message() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace kvtriage::cli
