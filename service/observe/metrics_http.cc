#include "service/observe/metrics_http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status_macros.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kConnectionLimit = std::chrono::seconds(5);
constexpr size_t kMaxHead = 8 << 10;
constexpr int kBacklog = 16;

absl::Status Unusable(const std::string& address, std::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("cannot serve metrics on ", address, ": ", std::string(why)));
}

struct HostPort {
  std::string host, port;  // no host: all addresses
};

HostPort Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {"", address};
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {host, address.substr(colon + 1)};
}

bool IsPort(const std::string& port) {
  return !port.empty() && port.size() <= 5 &&
         port.find_first_not_of("0123456789") == std::string::npos && std::stoi(port) <= 65'535;
}

absl::StatusOr<UniqueFd> Listen(const std::string& address) {
  const HostPort parts = Split(address);
  if (!IsPort(parts.port)) return Unusable(address, "the port is not a number up to 65535");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.empty() ? nullptr : parts.host.c_str(),
                                parts.port.c_str(), &hints, &found);
  if (error != 0) return Unusable(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;  // a port in TIME_WAIT is free; one in use stays taken
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket.valid() || bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return Unusable(address, std::strerror(errno));
  }
  return socket;
}

uint16_t PortOf(int socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  getsockname(socket, reinterpret_cast<sockaddr*>(&name), &bytes);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

std::string Answer(std::string_view status, std::string_view body, bool with_body) {
  return absl::StrCat("HTTP/1.1 ", std::string(status),
                      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
                      "\r\nContent-Length: ",
                      body.size(), "\r\nConnection: close\r\n\r\n",
                      with_body ? std::string(body) : "");
}

}  // namespace

std::string HttpAnswer(const std::string& head, const std::function<std::string()>& page) {
  const std::string_view line = std::string_view(head).substr(0, head.find("\r\n"));
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end + 1 ||
      !line.substr(target_end + 1).starts_with("HTTP/1.")) {
    return Answer("400 Bad Request", "not an HTTP request\n", true);
  }
  const std::string_view method = line.substr(0, method_end);
  std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  target = target.substr(0, target.find('?'));
  if (target != "/metrics") return Answer("404 Not Found", "only /metrics is here\n", true);
  if (method != "GET" && method != "HEAD") {
    return Answer("405 Method Not Allowed", "only GET and HEAD\n", true);
  }
  return Answer("200 OK", page(), method == "GET");
}

struct MetricsHttp::Server {
  // Waits until `socket` has `events`; false when the server stops or the time is over.
  bool Wait(int socket, int16_t events, Clock::time_point limit) const {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
      if (left <= 0) return false;
      pollfd watched[] = {{socket, events, 0}, {stop.get(), POLLIN, 0}};
      const int ready = poll(watched, 2, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      return ready > 0 && watched[1].revents == 0;
    }
  }

  void Run() {
    constexpr auto kForever = std::chrono::hours(1);
    while (!Stopping()) {
      if (!Wait(listener.get(), POLLIN, Clock::now() + kForever)) continue;
      const UniqueFd connection(
          accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (connection.valid()) Serve(connection.get());
    }
  }

  bool Stopping() const {
    pollfd watched{stop.get(), POLLIN, 0};
    return poll(&watched, 1, 0) > 0;
  }

  void Serve(int connection) const {
    const Clock::time_point limit = Clock::now() + kConnectionLimit;
    std::string head;
    while (head.find("\r\n\r\n") == std::string::npos && head.size() < kMaxHead) {
      char bytes[1024];
      if (!Wait(connection, POLLIN, limit)) return;
      const ssize_t got = recv(connection, bytes, sizeof(bytes), 0);
      if (got <= 0) return;
      head.append(bytes, static_cast<size_t>(got));
    }
    const std::string answer = HttpAnswer(head, page);
    std::string_view rest = answer;
    while (!rest.empty() && Wait(connection, POLLOUT, limit)) {
      const ssize_t sent = send(connection, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      rest.remove_prefix(static_cast<size_t>(sent));
    }
  }

  UniqueFd listener, stop;
  std::string address;
  std::function<std::string()> page;
  std::thread thread;
};

MetricsHttp::MetricsHttp() : server_(std::make_unique<Server>()) {}

absl::StatusOr<std::unique_ptr<MetricsHttp>> MetricsHttp::Start(const std::string& address,
                                                                std::function<std::string()> page) {
  std::unique_ptr<MetricsHttp> http(new MetricsHttp);
  Server& server = *http->server_;
  KVTRIAGE_ASSIGN_OR_RETURN(server.listener, Listen(address));
  server.stop.reset(eventfd(0, EFD_CLOEXEC));
  if (!server.stop.valid()) return Unusable(address, std::strerror(errno));
  const size_t colon = address.rfind(':');
  const std::string host = colon == std::string::npos ? "0.0.0.0:" : address.substr(0, colon + 1);
  server.address = absl::StrCat(host, PortOf(server.listener.get()));
  server.page = std::move(page);
  server.thread = std::thread([&server] { server.Run(); });
  return http;
}

MetricsHttp::~MetricsHttp() {
  if (!server_->thread.joinable()) return;
  const uint64_t one = 1;
  const ssize_t written = write(server_->stop.get(), &one, sizeof(one));
  (void)written;  // a counter at 0 always takes it
  server_->thread.join();
}

const std::string& MetricsHttp::address() const { return server_->address; }

}  // namespace kvtriage
