// How speed is judged here: never as seconds, always as a ratio to a ceiling or a peer that was
// measured in the same process right before and after. A shared machine is disturbed all the time,
// so the best of many short slices counts; the spread is printed.
#ifndef KVTRIAGE_TESTS_BENCH_RATIO_H_
#define KVTRIAGE_TESTS_BENCH_RATIO_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvtriage::bench {

struct Goal {
  std::string name;            // what was measured
  std::optional<double> must;  // blocks a release when missed
  std::optional<double> goal;
};

// Rates (work per second) of one slice of the subject and of its ceiling. Larger is faster.
struct Slice {
  double subject = 0, ceiling = 0;
};

class Report {
 public:
  // Takes `slices` slices and prints a line: best subject / best ceiling, median and worst of the
  // paired ratios. When the must is missed, tries up to three times.
  void Measure(const Goal& goal, int slices, const std::function<Slice()>& slice);

  // 1 when a must was missed in all its tries.
  int ExitCode() const { return missed_ ? 1 : 0; }

 private:
  bool missed_ = false;
};

// Seconds that `work` takes.
double Seconds(const std::function<void()>& work);

}  // namespace kvtriage::bench

#endif  // KVTRIAGE_TESTS_BENCH_RATIO_H_
