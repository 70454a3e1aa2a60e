#include "service/observe/metrics_http.h"

#include <civetweb.h>

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kvtriage {

struct MetricsHttp::Server {
  std::function<std::string()> page;
  mg_context* context = nullptr;
};

namespace {

constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// The library takes lists of ports, and letters behind a port for TLS and redirections.
bool IsOneAddress(const std::string& address) {
  return address.find(',') == std::string::npos && !address.empty() && address.back() >= '0' &&
         address.back() <= '9';
}

absl::Status Unusable(const std::string& address) {
  return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address,
                                             ": address unusable, port taken or no right to it"));
}

// The library's own words go nowhere: our log is JSON, and failures are returned.
int DropMessage(const mg_connection*, const char*) { return 1; }

int ServePage(mg_connection* connection, void* page) {
  const mg_request_info* request = mg_get_request_info(connection);
  const std::string_view uri = request->local_uri != nullptr ? request->local_uri : "";
  const std::string_view method = request->request_method;
  if (uri != "/metrics") {
    mg_send_http_error(connection, 404, "only /metrics is here");
    return 404;
  }
  if (method != "GET" && method != "HEAD") {
    mg_send_http_error(connection, 405, "only GET and HEAD");
    return 405;
  }
  const std::string body = (*static_cast<std::function<std::string()>*>(page))();
  const std::string head =
      absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", kContentType,
                   "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n");
  mg_write(connection, head.data(), head.size());
  if (method == "GET") mg_write(connection, body.data(), body.size());
  return 200;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsHttp>> MetricsHttp::Start(const std::string& address,
                                                                std::function<std::string()> page) {
  if (!IsOneAddress(address)) return Unusable(address);
  std::unique_ptr<MetricsHttp> http(new MetricsHttp);
  http->server_ = std::make_unique<Server>();
  http->server_->page = std::move(page);
  // A scraper that stalls holds the only thread for at most request_timeout_ms.
  const char* options[] = {"listening_ports",
                           address.c_str(),
                           "num_threads",
                           "1",
                           "request_timeout_ms",
                           "5000",
                           "enable_keep_alive",
                           "no",
                           nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = &DropMessage;
  std::array<char, 256> text{};
  unsigned code = 0;
  mg_init_data init{&callbacks, nullptr, options};
  mg_error_data error{&code, text.data(), text.size()};
  http->server_->context = mg_start2(&init, &error);
  if (http->server_->context == nullptr) return Unusable(address);
  mg_set_request_handler(http->server_->context, "/", &ServePage, &http->server_->page);
  mg_server_port port{};
  mg_get_server_ports(http->server_->context, 1, &port);
  const size_t colon = address.rfind(':');
  const std::string host = colon == std::string::npos ? "" : address.substr(0, colon + 1);
  http->address_ = absl::StrCat(host, port.port);
  return http;
}

MetricsHttp::~MetricsHttp() {
  if (server_->context != nullptr) mg_stop(server_->context);
}

}  // namespace kvtriage
