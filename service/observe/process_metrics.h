// What the kernel says about this process, read when the page is asked for.
#ifndef KVTRIAGE_SERVICE_OBSERVE_PROCESS_METRICS_H_
#define KVTRIAGE_SERVICE_OBSERVE_PROCESS_METRICS_H_

#include <vector>

#include "prometheus/metric_family.h"

namespace kvtriage {

class ProcessMetrics {
 public:
  ProcessMetrics();
  // Six families of one series each; a number that cannot be read is 0.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  double start_seconds_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_PROCESS_METRICS_H_
