// Serves /metrics over HTTP with one thread, one request per connection. Scrapers come every few
// seconds; a stalled one is cut off after 5 s.
#ifndef KVTRIAGE_SERVICE_OBSERVE_METRICS_HTTP_H_
#define KVTRIAGE_SERVICE_OBSERVE_METRICS_HTTP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace kvtriage {

class MetricsHttp {
 public:
  // `address` is HOST:PORT, [IPv6]:PORT or PORT alone (all addresses); port 0 lets the system
  // choose. `page` makes the body and is called on the HTTP thread. Unavailable with one line that
  // names the address when it cannot be served.
  static absl::StatusOr<std::unique_ptr<MetricsHttp>> Start(const std::string& address,
                                                            std::function<std::string()> page);
  ~MetricsHttp();  // stops the thread at once

  MetricsHttp(const MetricsHttp&) = delete;
  MetricsHttp& operator=(const MetricsHttp&) = delete;

  const std::string& address() const;  // with the port it really has

 private:
  MetricsHttp();
  struct Server;
  std::unique_ptr<Server> server_;
};

// The answer to a request's head. Pure.
std::string HttpAnswer(const std::string& head, const std::function<std::string()>& page);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_OBSERVE_METRICS_HTTP_H_
