// The running service: makes everything in order, drains, and takes it down in the opposite order.
#ifndef KVTRIAGE_SERVICE_APP_SERVICE_H_
#define KVTRIAGE_SERVICE_APP_SERVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "service/app/config.h"

namespace kvtriage {

class Service {
 public:
  // Serving when it returns. InvalidArgument: the configuration cannot work here. Other codes:
  // could not start. One line each.
  static absl::StatusOr<std::unique_ptr<Service>> Start(const Config& config);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Waits for SIGTERM or SIGINT, then drains; a second signal ends the drain early. The exit code.
  int RunUntilStopped();

 private:
  Service();
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_SERVICE_H_
