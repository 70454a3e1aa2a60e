// A kvtriaged of a test's own: private sockets, a metrics page on a free port, ended with the test.
#ifndef KVTRIAGE_TESTS_SUPPORT_SERVICE_PROCESS_H_
#define KVTRIAGE_TESTS_SUPPORT_SERVICE_PROCESS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/temp_dir.h"

namespace kvtriage {

class ServiceProcess {
 public:
  // The program must stand at KVTRIAGE_BIN_DIR/kvtriaged.
  explicit ServiceProcess(std::string program);
  ~ServiceProcess();

  // Starts it with `flags` added and waits until it has started. After an end: again, on the same
  // sockets. Fails the test and answers false when it does not start.
  bool Start(const std::vector<std::string>& flags = {});

  ChildProcess& process() { return *process_; }
  const std::string& endpoint() const { return endpoint_; }
  const TempDir& directory() const { return directory_; }

  // The text of /metrics; empty when nobody serves it.
  std::string Metrics() const;
  // The sum over the series of a metric whose labels contain `label` ("" = all); nothing without
  // one.
  std::optional<double> Metric(const std::string& name, const std::string& label = "") const;
  std::string Log() const;

 private:
  const std::string program_;
  TempDir directory_;
  std::string endpoint_, log_path_, metrics_address_;
  std::unique_ptr<ChildProcess> process_;
  size_t log_begin_ = 0;  // of this start's lines
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_SERVICE_PROCESS_H_
