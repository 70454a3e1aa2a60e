#include "client/cli/report_html.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/report_page.h"
#include "client/cli/token_strip.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kCells = 256;

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// One base-36 digit per cell: 80 runs of a dozen lists stay a small page.
std::string ShareDigits(const std::vector<double>& shares) {
  std::string digits;
  for (const double share : shares) {
    digits += "0123456789abcdefghijklmnopqrstuvwxyz"[std::lround(share * 35)];
  }
  return digits;
}

Json Number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json RunJson(const PolicyRun& run) {
  Json lists = Json::array();
  for (const LayerRun& layer : run.layers) {
    const bool shared = layer.kept.size() > 1 &&
                        std::equal(layer.kept.begin() + 1, layer.kept.end(), layer.kept.begin());
    for (size_t head = 0; head < (shared ? 1 : layer.kept.size()); ++head) {
      lists.push_back({{"layer", layer.layer},
                       {"heads", shared ? "all" : std::to_string(head)},
                       {"rows", layer.rows},
                       {"shares", ShareDigits(KeptShares(layer.kept[head], layer.rows, kCells))}});
    }
  }
  const RunSummary summary = Summarise(run);
  return {{"policy", run.policy},
          {"keep", run.keep},
          {"keep_text", run.keep_text},
          {"error_mean", Number(summary.error_mean)},
          {"future_mean", Number(summary.future_mean)},
          {"lists", std::move(lists)}};
}

std::string Cell(const std::optional<double>& value, int digits) {
  return absl::StrCat("<td>", value ? absl::StrFormat("%.*f", digits, *value) : std::string("–"),
                      "</td>");
}

std::string Table(const std::vector<PolicyRun>& runs) {
  std::string html =
      "<div class=scroll><table><tr><th>policy<th>keep<th>retained mass<th>error on window<th>p95"
      "<th>error on later queries<th>p95<th>oracle recall<th>ms</tr>\n";
  for (const PolicyRun& run : runs) {
    const RunSummary s = Summarise(run);
    absl::StrAppend(&html, "<tr><td>", Escape(run.policy), "</td><td>", Escape(run.keep_text),
                    "</td>", Cell(s.mass_mean, 4), Cell(s.error_mean, 4), Cell(s.error_p95, 4),
                    Cell(s.future_mean, 4), Cell(s.future_p95, 4), Cell(s.recall_mean, 3),
                    Cell(run.milliseconds, 2), "</tr>\n");
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string ReportHtml(const std::string& title, const std::vector<PolicyRun>& runs) {
  Json data = {{"runs", Json::array()}};
  for (const PolicyRun& run : runs) data["runs"].push_back(RunJson(run));
  // "<" inside the data must not end the script element.
  const std::string json = absl::StrReplaceAll(data.dump(), {{"<", "\\u003c"}});
  return absl::StrCat(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
      "<meta name=viewport content=\"width=device-width, initial-scale=1\"><title>kvtriage: ",
      Escape(title), "</title><style>", kReportStyle, "</style></head><body>\n<h1>", Escape(title),
      "</h1>\n<p class=note>Retained mass is the share of the window's attention that the kept "
      "tokens "
      "hold. Errors are those of the attention output, pooled over the query rows of a KV head; "
      "the "
      "figures are the mean and the 95th percentile over layers and heads. Good for how much may "
      "go, "
      "weak for which of two good policies to take.</p>\n",
      Table(runs),
      "<h2>Error against budget</h2><div id=legend class=legend></div><div class=charts>"
      "<div><h3>on the window</h3><div id=window-chart></div></div>"
      "<div><h3>on later queries</h3><div id=later-chart></div></div></div>\n"
      "<h2>Where the kept tokens stand</h2><p><select id=choice></select></p>"
      "<p class=note>Start of the prompt on the left, newest token on the right.</p>"
      "<p id=where></p><div id=strips></div>\n"
      "<script type=\"application/json\" id=data>",
      json, "</script><script>", kReportScript, "</script></body></html>\n");
}

}  // namespace kvtriage::cli
