#include "client/cli/doctor.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/doctor_probes.h"
#include "kvtriage/error_details.h"

namespace kvtriage::cli {
namespace {

constexpr absl::Duration kStepLimit = absl::Seconds(10);
constexpr absl::Duration kDeviceStepLimit = absl::Seconds(20);
// For the service's own answer that it was too late.
constexpr std::chrono::milliseconds kGrace(500);

// One Connect makes steps 1 and 2; its words say which of them failed.
bool AboutFdSocket(const std::string& word) {
  return word.starts_with("fd_socket") || word == "server_untrusted" || word == "session_not_bound";
}

}  // namespace

bool DoctorReport::healthy() const {
  return std::all_of(steps.begin(), steps.end(), [](const StepReport& step) {
    return step.state == StepState::kOk || step.state == StepState::kSkipped;
  });
}

Doctor::Doctor(std::string endpoint, absl::Duration timeout, bool devices)
    : endpoint_(std::move(endpoint)),
      end_(absl::Now() + timeout),
      devices_(devices),
      step_end_(end_) {}

DoctorReport Doctor::Run() {
  report_ = {};
  Step("socket", &Doctor::Socket);
  Step("fd socket", &Doctor::FdSocket);
  Step("identity", &Doctor::Identity);
  Step("host memory", &Doctor::HostMemory);
  Step("triage", &Doctor::Triage);
  if (devices_) Step("device memory", &Doctor::DeviceMemory);
  return report_;
}

void Doctor::Step(const std::string& name, Finding (Doctor::*check)()) {
  StepReport step;
  step.step = name;
  const absl::Time begin = absl::Now();
  if (report_.healthy() && begin < end_) {
    step_end_ = std::min(end_, begin + kStepLimit);
    Finding finding = (this->*check)();
    step.state = finding.skipped        ? StepState::kSkipped
                 : finding.word.empty() ? StepState::kOk
                                        : StepState::kFailed;
    step.word = std::move(finding.word);
    step.text = std::move(finding.text);
    step.milliseconds = absl::ToInt64Milliseconds(absl::Now() - begin);
  }
  report_.steps.push_back(std::move(step));
}

client::CallOptions Doctor::Limit() const {
  const int64_t left = absl::ToInt64Milliseconds(step_end_ - absl::Now());
  return {.deadline_ms = static_cast<uint64_t>(std::max<int64_t>(left, 0)), .retry = true};
}

Doctor::Finding Doctor::From(const absl::Status& status) {
  if (status.ok()) return {};
  const auto details = client::GetErrorDetails(status);
  const std::string text(status.message());
  return {details.has_value() ? details->reason : "no_answer", text};
}

Doctor::Finding Doctor::Socket() {
  client::ConnectOptions options;
  options.endpoint = endpoint_;
  options.client = "kvtriage-doctor/" KVTRIAGE_VERSION;
  options.connect_ms = Limit().deadline_ms;
  options.settle_ms = 1000;  // its memory is its own: nothing is lost when a fate stays open
  auto session = client::Session::Connect(options);
  connected_ = session.status();
  if (session.ok()) session_ = *std::move(session);
  Finding finding = From(connected_);
  if (AboutFdSocket(finding.word)) return {"", "attached"};
  if (finding.word.empty()) finding.text = absl::StrCat("attached at ", endpoint_);
  return finding;
}

Doctor::Finding Doctor::FdSocket() {
  Finding finding = From(connected_);
  if (finding.word.empty()) return {"", "session bound, ledger mapped"};
  if (finding.word != "session_not_bound") finding.word = "fd_socket_denied";
  return finding;
}

Doctor::Finding Doctor::Identity() {
  const client::SessionState state = session_->state();
  if (state.server_uid != geteuid()) {
    report_.warnings.push_back(
        absl::StrCat("uid_differs: ours is ", geteuid(), ", the service's ", state.server_uid));
  }
  if (state.server_pid == getpid()) {
    return {"pid_collision", absl::StrCat("both processes have the pid number ", getpid())};
  }
  return {"", absl::StrCat("uid ", geteuid(), ", gid ", getegid(), ", pid ", getpid(),
                           "; service: uid ", state.server_uid, ", gid ", state.server_gid,
                           ", pid ", state.server_pid)};
}

Doctor::Finding Doctor::HostMemory() {
  const Verdict verdict = ProbeHostMemory(*session_, [this] { return Limit(); });
  return verdict.status.ok() ? Finding{verdict.word, verdict.text} : From(verdict.status);
}

Doctor::Finding Doctor::Triage() {
  const Verdict verdict = ProbeTriage(*session_, [this] { return Limit(); });
  return verdict.status.ok() ? Finding{verdict.word, verdict.text} : From(verdict.status);
}

// On a thread of its own, as a call of CUDA may never return. With several devices the step may
// take longer than others.
Doctor::Finding Doctor::DeviceMemory() {
  step_end_ = std::min(end_, absl::Now() + kDeviceStepLimit);
  auto done = std::make_shared<std::promise<DeviceVerdict>>();
  std::future<DeviceVerdict> answer = done->get_future();
  std::thread([this, done] {
    done->set_value(ProbeDeviceMemory(*session_, [this] { return Limit(); }));
  }).detach();
  const int64_t left = absl::ToInt64Milliseconds(step_end_ - absl::Now());
  if (answer.wait_for(std::chrono::milliseconds(left) + kGrace) == std::future_status::timeout) {
    report_.hangs = true;
    return {"cuda_silent", "a call of CUDA does not return"};
  }
  const DeviceVerdict verdict = answer.get();
  if (verdict.none) return {"", verdict.text, true};
  Finding finding =
      verdict.status.ok() ? Finding{verdict.word, verdict.text} : From(verdict.status);
  if (!finding.word.empty()) finding.text = absl::StrCat(verdict.device, ": ", finding.text);
  return finding;
}

}  // namespace kvtriage::cli
