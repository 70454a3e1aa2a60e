// Table, strips, JSON and report of runs.
#include <limits>

#include "client/cli/report_html.h"
#include "client/cli/result_json.h"
#include "client/cli/result_table.h"
#include "client/cli/run_result.h"
#include "client/cli/token_strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

PolicyRun Example() {
  PolicyRun run{"snapkv", 0.2, "0.20", {}, 1.5};
  run.layers.push_back({.layer = 3,
                        .rows = 10,
                        .kept = {{0, 9}, {4, 5}},
                        .retained_mass = {0.5, 0.7},
                        .output_error = {0.1, 0.3},
                        .future_output_error = {},
                        .oracle_recall = {1, 0}});
  run.layers.push_back({.layer = 8,
                        .rows = 10,
                        .kept = {{1, 2}, {1, 2}},
                        .retained_mass = {0.9, 0.9},
                        .output_error = {0.2, std::numeric_limits<double>::quiet_NaN()},
                        .future_output_error = {},
                        .oracle_recall = {0.5, 0.5}});
  return run;
}

TEST(RunSummary, AveragesOverLayersAndHeads) {
  const RunSummary summary = Summarise(Example());
  EXPECT_DOUBLE_EQ(*summary.mass_mean, 0.75);
  EXPECT_DOUBLE_EQ(*summary.error_mean, 0.2);  // of the three heads that have a figure
  EXPECT_DOUBLE_EQ(*summary.error_p95, 0.3);
  EXPECT_DOUBLE_EQ(*summary.recall_mean, 0.5);
  EXPECT_FALSE(summary.future_mean.has_value());
}

TEST(TokenStrip, SharesCoverEveryRowOnce) {
  EXPECT_EQ(KeptShares(std::vector<int32_t>{0, 9}, 10, 5),
            (std::vector<double>{0.5, 0, 0, 0, 0.5}));
  EXPECT_EQ(KeptShares(std::vector<int32_t>{0, 1, 2}, 3, 80), (std::vector<double>{1, 1, 1}));
  EXPECT_TRUE(KeptShares({}, 0, 80).empty());
  for (uint64_t rows = 1; rows < 40; ++rows) {
    std::vector<int32_t> all;
    for (uint64_t row = 0; row < rows; ++row) all.push_back(static_cast<int32_t>(row));
    for (const double share : KeptShares(all, rows, 7)) EXPECT_EQ(share, 1) << rows;
  }
}

TEST(TokenStrip, AnyKeptTokenShowsAndOnlyAWholeCellIsFull) {
  EXPECT_EQ(StripText({0, 0.01, 0.5, 0.99, 1}), " ░▒▓█");
}

TEST(ResultTable, OneRowWithDashesWhereNothingWasMeasured) {
  EXPECT_THAT(TableRow(Example()), HasSubstr("snapkv"));
  EXPECT_THAT(TableRow(Example()), HasSubstr("0.7500"));
  EXPECT_THAT(TableRow(Example()), HasSubstr("-"));
  const std::string strips = Strips(Example(), 10);
  EXPECT_THAT(strips, HasSubstr("layer   3 head 0     |█        █|"));
  EXPECT_THAT(strips, HasSubstr("layer   8 head all   | ██       |"));
}

TEST(ResultJson, HasTheDocumentedForm) {
  const auto json = nlohmann::json::parse(RunsToJson({Example()}));
  const auto& run = json["runs"][0];
  EXPECT_EQ(run["policy"], "snapkv");
  EXPECT_EQ(run["keep"], 0.2);
  EXPECT_EQ(run["milliseconds"], 1.5);
  EXPECT_EQ(run["layers"][1]["layer"], 8);
  EXPECT_EQ(run["layers"][1]["kept"], (std::vector<std::vector<int>>{{1, 2}, {1, 2}}));
  EXPECT_EQ(run["layers"][0]["oracle_recall"], (std::vector<double>{1, 0}));
  EXPECT_TRUE(run["layers"][0]["future_output_error"].is_null());
  EXPECT_TRUE(run["layers"][1]["output_error"][1].is_null());
}

TEST(ReportHtml, IsSelfContainedAndEscapesWhatItShows) {
  PolicyRun run = Example();
  run.policy = "</script><b>";
  const std::string html = ReportHtml("a <dump> & more", {run});
  EXPECT_THAT(html, HasSubstr("a &lt;dump&gt; &amp; more"));
  EXPECT_THAT(html, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("<link")));
  const std::string open = "<script type=\"application/json\" id=data>";
  const size_t begin = html.find(open) + open.size();
  const auto data =
      nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  EXPECT_EQ(data["runs"][0]["policy"], "</script><b>");
  EXPECT_EQ(data["runs"][0]["lists"].size(),
            3u);  // two heads of layer 3, one shared list of layer 8
  EXPECT_EQ(data["runs"][0]["lists"][0]["shares"], "z00000000z");
}

}  // namespace
}  // namespace kvtriage::cli
