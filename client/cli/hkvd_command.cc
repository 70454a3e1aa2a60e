#include "client/cli/hkvd_command.h"

#include <iostream>
#include <optional>
#include <vector>

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
    {"--metric", "v|k|relative",
     "squared difference of V, of K at the same positions (it is re-rotated first), or of V "
     "relative "
     "to the old V (required)"},
    {"--prefix", "N", "first rows that are an exact prefix hit (default 0)"},
    {"--json", "", "print JSON"},
    {"--endpoint", "PATH", "the service's socket; else the default one, else a private service"},
    {"--help", "", "this text"},
};
constexpr uint64_t kStripCells = 64;
// How much of the divergence a few rows carry, whatever ratio was asked for.
constexpr double kCarriedRatios[] = {0.05, 0.10, 0.15, 0.20};

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
  if (text == "k") return client::DivergenceMetric::kKL2;
  return absl::InvalidArgumentError("--metric: must be v, k or relative");
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

struct Carried {
  double ratio = 0, divergence_share = 0;
};

void Print(const HkvdRun& run, const std::vector<Carried>& carried,
           const std::optional<KeyDifference>& keys, double ratio) {
  if (keys) {
    std::cout << absl::StrFormat(
        "layer %u: reused keys differ from fresh ones by %.4f as stored, %.4f re-rotated\n",
        run.layer, keys->stored, keys->rerotated);
  }
  std::cout << absl::StrFormat(
      "layer %u: %d of %d rows to recompute (%d must, %d HKVD at %g %%), which carry %.1f %% of "
      "the divergence\n",
      run.layer, run.all.size(), run.rows, run.must.size(), run.hkvd.size(), ratio * 100,
      run.divergence_share * 100);
  std::cout << "  |" << StripText(KeptShares(run.all, run.rows, kStripCells)) << "|\n";
  std::cout << "  carried by the rows that diverge most:";
  const char* comma = "";
  for (const Carried& entry : carried) {
    std::cout << absl::StrFormat("%s %.1f %% by %g %%", comma, entry.divergence_share * 100,
                                 entry.ratio * 100);
    comma = ",";
  }
  std::cout << "\n";
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
  KVTRIAGE_ASSIGN_OR_RETURN(
      const LentBlendLayer lent,
      LentBlendLayer::Lend(*connection.session, dump, *layer, options.metric));
  KVTRIAGE_ASSIGN_OR_RETURN(const HkvdRun run,
                            lent.Select(*connection.session, options.ratio, options.prefix));
  std::vector<Carried> carried;
  for (const double ratio : kCarriedRatios) {
    KVTRIAGE_ASSIGN_OR_RETURN(const HkvdRun some,
                              lent.Select(*connection.session, ratio, options.prefix));
    carried.push_back({ratio, some.divergence_share});
  }
  if (options.json) {
    nlohmann::ordered_json json = {{"layer", run.layer},
                                   {"must", run.must},
                                   {"hkvd", run.hkvd},
                                   {"rows", run.all},
                                   {"divergence_share", run.divergence_share},
                                   {"carried", nlohmann::ordered_json::array()}};
    for (const Carried& entry : carried) {
      json["carried"].push_back(
          {{"ratio", entry.ratio}, {"divergence_share", entry.divergence_share}});
    }
    if (const auto& keys = lent.key_difference()) {
      json["key_difference"] = {{"stored", keys->stored}, {"rerotated", keys->rerotated}};
    }
    std::cout << json.dump() << "\n";
  } else {
    Print(run, carried, lent.key_difference(), options.ratio);
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
