#include "client/cli/doctor_command.h"

#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/doctor.h"
#include "client/cli/doctor_advice.h"
#include "client/cli/flags.h"
#include "client/cli/text_table.h"
#include "nlohmann/json.hpp"

namespace kvtriage::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"--endpoint", "PATH", "the service's socket (default: the standard one; none is started)"},
    {"--timeout", "SECONDS", "limit of all steps together (default 60; each has 10)"},
    {"--host-only", "", "leave device memory out"},
    {"--json", "", "print JSON"},
    {"--help", "", "this text"},
};

const char* Word(StepState state) {
  switch (state) {
    case StepState::kOk:
      return "ok";
    case StepState::kFailed:
      return "failed";
    case StepState::kNotRun:
      return "not run";
    case StepState::kSkipped:
      return "skipped";
  }
  return "not run";
}

std::string Text(const DoctorReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const StepReport& step : report.steps) {
    const std::string time =
        step.state == StepState::kNotRun ? "" : absl::StrCat(step.milliseconds, " ms");
    const std::string what =
        step.word.empty() ? step.text : absl::StrCat(step.word, ": ", step.text);
    rows.push_back({step.step, Word(step.state), time, what});
  }
  std::string text = TextTable(rows);
  for (const StepReport& step : report.steps) {
    const std::string advice(AdviceFor(step.word));
    if (!advice.empty()) absl::StrAppend(&text, step.step, ": ", advice, "\n");
  }
  for (const std::string& warning : report.warnings)
    absl::StrAppend(&text, "warning: ", warning, "\n");
  return text;
}

std::string JsonText(const DoctorReport& report, const std::string& endpoint) {
  using Json = nlohmann::ordered_json;
  Json json = {{"endpoint", endpoint}, {"ok", report.healthy()}};
  json["steps"] = Json::array();
  for (const StepReport& step : report.steps) {
    json["steps"].push_back({{"step", step.step},
                             {"state", Word(step.state)},
                             {"word", step.word},
                             {"text", step.text},
                             {"advice", AdviceFor(step.word)},
                             {"milliseconds", step.milliseconds}});
  }
  json["warnings"] = report.warnings;
  return json.dump() + "\n";
}

int BadFlags(const std::string& text) {
  std::cerr << "kvtriage doctor: " << text << "\n";
  return 2;
}

}  // namespace

int DoctorCommand(std::span<const std::string> arguments) {
  const absl::StatusOr<Flags> flags = Flags::Parse(kFlags, arguments);
  if (!flags.ok()) return BadFlags(std::string(flags.status().message()));
  if (flags->Has("--help")) {
    std::cout << "kvtriage doctor: proves that this process can share memory with a service\n"
              << FlagHelp(kFlags);
    return 0;
  }
  uint32_t seconds = 60;
  const std::string given = flags->Get("--timeout").value_or("60");
  if (!absl::SimpleAtoi(given, &seconds) || seconds == 0) {
    return BadFlags(absl::StrCat("--timeout: ", given, " is not a number of seconds"));
  }
  // A missing service is what it looks for: it never starts one.
  const std::string endpoint = flags->Get("--endpoint").value_or(client::kDefaultEndpoint);
  Doctor doctor(endpoint, absl::Seconds(seconds), !flags->Has("--host-only"));
  const DoctorReport report = doctor.Run();
  std::cout << (flags->Has("--json") ? JsonText(report, endpoint) : Text(report)) << std::flush;
  if (report.hangs) std::_Exit(1);
  return report.healthy() ? 0 : 1;
}

}  // namespace kvtriage::cli
