// The doctor: can this process and a service share memory, and does kvtriage work on it? It plays
// the worker. Every step has its own limit; a step behind a failed one does not run.
#ifndef KVTRIAGE_CLIENT_CLI_DOCTOR_H_
#define KVTRIAGE_CLIENT_CLI_DOCTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kvtriage/session.h"

namespace kvtriage::cli {

enum class StepState { kOk, kFailed, kNotRun, kSkipped };

struct StepReport {
  // "socket", "fd socket", "identity", "host memory", "triage", "device memory"
  std::string step;
  StepState state = StepState::kNotRun;
  std::string word;  // of a failure: a heading of the runbook
  std::string text;  // what was seen
  int64_t milliseconds = 0;
};

struct DoctorReport {
  std::vector<StepReport> steps;
  std::vector<std::string> warnings;  // words with their numbers
  // CUDA did not come back from a call: a thread still waits for it and uses the Doctor. Neither
  // may end; the process leaves by _Exit.
  bool hangs = false;
  bool healthy() const;  // skipped steps are no fault
};

class Doctor {
 public:
  // All steps together end by `timeout`. `devices`: with the step of device memory.
  Doctor(std::string endpoint, absl::Duration timeout, bool devices);
  DoctorReport Run();

 private:
  struct Finding {
    std::string word;  // empty: good
    std::string text;
    bool skipped = false;
  };

  void Step(const std::string& name, Finding (Doctor::*check)());
  Finding Socket();
  Finding FdSocket();
  Finding Identity();
  Finding HostMemory();
  Finding Triage();
  Finding DeviceMemory();
  client::CallOptions Limit() const;
  static Finding From(const absl::Status& status);

  const std::string endpoint_;
  const absl::Time end_;
  const bool devices_;
  absl::Time step_end_;
  std::unique_ptr<client::Session> session_;
  absl::Status connected_;
  DoctorReport report_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DOCTOR_H_
