#include "tests/support/service_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "gtest/gtest.h"
#include "tests/support/wait_until.h"

namespace kvtriage {
namespace {

// The value of "key":"value" in a line of JSON.
std::string Field(const std::string& line, const std::string& key) {
  const std::string mark = "\"" + key + "\":\"";
  const size_t begin = line.find(mark);
  if (begin == std::string::npos) return "";
  const size_t from = begin + mark.size();
  return line.substr(from, line.find('"', from) - from);
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "";
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request =
        "GET " + path + " HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    (void)!write(socket, request.data(), request.size());
    char bytes[4096];
    ssize_t got = 0;
    while ((got = read(socket, bytes, sizeof(bytes))) > 0)
      answer.append(bytes, static_cast<size_t>(got));
  }
  close(socket);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace

ServiceProcess::ServiceProcess(std::string program)
    : program_(std::move(program)),
      endpoint_(directory_.File("kvtriage.sock")),
      log_path_(directory_.File("log")) {}

ServiceProcess::~ServiceProcess() {
  if (process_ == nullptr) return;
  process_->Signal(SIGTERM);
  process_->WaitExit(5'000);
}

std::string ServiceProcess::Log() const {
  std::ifstream in(log_path_, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool ServiceProcess::Start(const std::vector<std::string>& flags) {
  log_begin_ = Log().size();
  ChildProcess::Options options;
  options.stderr_path = log_path_;
  options.arguments = {"--listen.uds=" + endpoint_, "--listen.metrics=127.0.0.1:0",
                       "--exit-with-parent", "--drain.notice_ms=0", "--log.level=debug"};
  options.arguments.insert(options.arguments.end(), flags.begin(), flags.end());
  process_ = ChildProcess::Start(program_, options);
  if (process_ == nullptr) return false;
  std::string started;
  const bool up = WaitUntil([&] {
    std::istringstream lines(Log().substr(log_begin_));
    for (std::string line; std::getline(lines, line);) {
      if (Field(line, "event") == "started" && !lines.eof()) started = line;
    }
    return !started.empty() || !process_->running();
  });
  if (!up || started.empty()) {
    ADD_FAILURE() << "kvtriaged did not start:\n" << Log().substr(log_begin_);
    return false;
  }
  metrics_address_ = Field(started, "metrics");
  return true;
}

std::string ServiceProcess::Metrics() const { return HttpGet(metrics_address_, "/metrics"); }

std::optional<double> ServiceProcess::Metric(const std::string& name,
                                             const std::string& label) const {
  std::optional<double> sum;
  std::istringstream lines(Metrics());
  for (std::string line; std::getline(lines, line);) {
    const bool named = line.starts_with(name + "{") || line.starts_with(name + " ");
    if (!named || line.find(label) == std::string::npos) continue;
    sum = sum.value_or(0) + std::atof(line.c_str() + line.rfind(' '));
  }
  return sum;
}

}  // namespace kvtriage
