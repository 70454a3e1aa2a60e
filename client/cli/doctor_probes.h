// The steps of the doctor that use memory.
#ifndef KVTRIAGE_CLIENT_CLI_DOCTOR_PROBES_H_
#define KVTRIAGE_CLIENT_CLI_DOCTOR_PROBES_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kvtriage/session.h"

namespace kvtriage::cli {

struct Verdict {
  absl::Status status;  // of a call that failed
  std::string word;     // calls went well, bytes did not: pattern_mismatch, wrong_answer
  std::string text;     // what was seen, good or bad
};

// What is left of the step's time, asked before each call.
using TimeLeft = std::function<client::CallOptions()>;

// Both sides read and write the same bytes: a checksum of what we wrote, a pattern that the service
// writes into the middle, every other byte as it was.
Verdict ProbeHostMemory(client::Session& session, const TimeLeft& left);

struct DeviceVerdict : Verdict {
  bool none = false;   // this process has no device: nothing was done, `text` says why
  std::string device;  // which one it is about
};

// The same on every CUDA device that this process sees, up to the first that fails. The lent part
// begins inside an allocation; the bytes around it are compared too.
DeviceVerdict ProbeDeviceMemory(client::Session& session, const TimeLeft& left);

// `streaming` on 64 tokens x 2 layers x 2 heads, in place, to 16: rows 0..3 and 52..63 stay.
Verdict ProbeTriage(client::Session& session, const TimeLeft& left);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DOCTOR_PROBES_H_
