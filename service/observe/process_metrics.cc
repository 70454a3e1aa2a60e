#include "service/observe/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "service/observe/catalogue.h"

namespace kvtriage {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double CpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double Threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::atof(line.c_str() + 8);
  }
  return 0;
}

double OpenDescriptors() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  double count = -3;  // ".", ".." and the descriptor of this very listing
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

double MaxDescriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

prometheus::MetricFamily Family(const catalogue::Metric& metric, double value) {
  prometheus::MetricFamily family;
  family.name = metric.name;
  family.help = metric.help;
  prometheus::ClientMetric series;
  if (metric.type == catalogue::Type::kCounter) {
    family.type = prometheus::MetricType::Counter;
    series.counter.value = value;
  } else {
    family.type = prometheus::MetricType::Gauge;
    series.gauge.value = value;
  }
  family.metric.push_back(std::move(series));
  return family;
}

}  // namespace

ProcessMetrics::ProcessMetrics() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  start_seconds_ = std::chrono::duration<double>(now).count();
}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  return {Family(catalogue::kProcessCpuSecondsTotal, CpuSeconds()),
          Family(catalogue::kProcessResidentMemoryBytes, ResidentBytes()),
          Family(catalogue::kProcessOpenFds, OpenDescriptors()),
          Family(catalogue::kProcessMaxFds, MaxDescriptors()),
          Family(catalogue::kProcessThreads, Threads()),
          Family(catalogue::kProcessStartTimeSeconds, start_seconds_)};
}

}  // namespace kvtriage
