#include "client/cli/result_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/token_strip.h"

namespace kvtriage::cli {
namespace {

std::string Figure(const std::optional<double>& value, int digits) {
  return value ? absl::StrFormat("%.*f", digits, *value) : std::string("-");
}

// "0,1,2", or "all" when every head shares the list.
std::string HeadsWithList(const LayerRun& layer, size_t first, std::vector<bool>& shown) {
  std::string heads;
  size_t count = 0;
  for (size_t head = first; head < layer.kept.size(); ++head) {
    if (layer.kept[head] != layer.kept[first]) continue;
    shown[head] = true;
    absl::StrAppend(&heads, heads.empty() ? "" : ",", head);
    ++count;
  }
  return count == layer.kept.size() && count > 1 ? "all" : heads;
}

}  // namespace

std::string TableHeader() {
  return absl::StrFormat(
      "%-18s %6s %9s %10s %8s %11s %8s %8s %9s\n%-18s %6s %9s %10s %8s %11s %8s %8s %9s\n", "", "",
      "retained", "error on", "", "error on", "", "oracle", "", "policy", "keep", "mass", "window",
      "p95", "later rows", "p95", "recall", "ms");
}

std::string TableRow(const PolicyRun& run) {
  const RunSummary s = Summarise(run);
  return absl::StrFormat("%-18s %6s %9s %10s %8s %11s %8s %8s %9.2f\n", run.policy, run.keep_text,
                         Figure(s.mass_mean, 4), Figure(s.error_mean, 4), Figure(s.error_p95, 4),
                         Figure(s.future_mean, 4), Figure(s.future_p95, 4),
                         Figure(s.recall_mean, 3), run.milliseconds);
}

std::string Strips(const PolicyRun& run, uint64_t cells) {
  std::string text = absl::StrCat(run.policy, " at ", run.keep_text, "\n");
  for (const LayerRun& layer : run.layers) {
    std::vector<bool> shown(layer.kept.size(), false);
    for (size_t head = 0; head < layer.kept.size(); ++head) {
      if (shown[head]) continue;
      const std::string heads = HeadsWithList(layer, head, shown);
      absl::StrAppend(&text, absl::StrFormat("  layer %3u head %-5s ", layer.layer, heads), "|",
                      StripText(KeptShares(layer.kept[head], layer.rows, cells)), "|\n");
    }
  }
  return text;
}

}  // namespace kvtriage::cli
