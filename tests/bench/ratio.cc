#include "tests/bench/ratio.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace kvtriage::bench {
namespace {

struct Outcome {
  double best = 0, median = 0, worst = 0;
  double subject = 0, ceiling = 0;
  bool disturbed = false;
};

Outcome Try(int slices, const std::function<Slice()>& slice) {
  std::vector<double> paired, ceilings;
  Outcome outcome;
  for (int i = 0; i < slices; ++i) {
    const Slice one = slice();
    paired.push_back(one.subject / one.ceiling);
    ceilings.push_back(one.ceiling);
    outcome.subject = std::max(outcome.subject, one.subject);
    outcome.ceiling = std::max(outcome.ceiling, one.ceiling);
  }
  std::sort(paired.begin(), paired.end());
  std::sort(ceilings.begin(), ceilings.end());
  outcome.best = outcome.subject / outcome.ceiling;
  outcome.median = paired[paired.size() / 2];
  outcome.worst = paired.front();
  outcome.disturbed = ceilings[ceilings.size() / 2] < 0.8 * ceilings.back();
  return outcome;
}

std::string Bound(const std::optional<double>& bound) {
  char text[16];
  if (!bound) return "-";
  std::snprintf(text, sizeof text, "%.2f", *bound);
  return text;
}

}  // namespace

void Report::Measure(const Goal& goal, int slices, const std::function<Slice()>& slice) {
  constexpr int kTries = 3;
  for (int attempt = 1; attempt <= kTries; ++attempt) {
    const Outcome outcome = Try(slices, slice);
    const bool met = !goal.must || outcome.best >= *goal.must;
    std::printf("%-58s %6.2f  (paired: median %.2f, worst %.2f; must %s, goal %s)%s%s\n",
                goal.name.c_str(), outcome.best, outcome.median, outcome.worst,
                Bound(goal.must).c_str(), Bound(goal.goal).c_str(),
                outcome.disturbed ? "  disturbed" : "", met ? "" : "  MISSED");
    std::printf(
        "{\"name\":\"%s\",\"ratio\":%.4f,\"median\":%.4f,\"worst\":%.4f,\"subject\":%.4g,"
        "\"ceiling\":%.4g}\n",
        goal.name.c_str(), outcome.best, outcome.median, outcome.worst, outcome.subject,
        outcome.ceiling);
    std::fflush(stdout);
    if (met) return;
    if (attempt == kTries) missed_ = true;
  }
}

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace kvtriage::bench
