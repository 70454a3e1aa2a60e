#include "service/observe/process_metrics.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace kvtriage {
namespace {

TEST(ProcessMetrics, ReadsThisProcess) {
  const ProcessMetrics process;
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : process.Collect()) {
    ASSERT_EQ(family.metric.size(), 1u);
    const prometheus::ClientMetric& series = family.metric[0];
    values[family.name] =
        family.type == prometheus::MetricType::Counter ? series.counter.value : series.gauge.value;
  }
  EXPECT_EQ(values.size(), 6u);
  EXPECT_GT(values["process_resident_memory_bytes"], 1 << 20);
  EXPECT_GE(values["process_open_fds"], 3);
  EXPECT_LT(values["process_open_fds"], values["process_max_fds"]);
  EXPECT_GE(values["process_threads"], 1);
  EXPECT_GE(values["process_cpu_seconds_total"], 0);
  EXPECT_GT(values["process_start_time_seconds"], 1.6e9);
}

}  // namespace
}  // namespace kvtriage
