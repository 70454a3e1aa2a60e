// Hello: the first message of an Attach.
#ifndef KVTRIAGE_SERVICE_VALIDATE_SESSION_PROTO_H_
#define KVTRIAGE_SERVICE_VALIDATE_SESSION_PROTO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kvtriage/v1/session.pb.h"

namespace kvtriage {

struct HelloSpec {
  uint32_t api_revision = 0;  // the one both sides speak
  std::string client;         // "name/version"; safe to log
  uint32_t rank = 0, world_size = 0;
};

// FIELD_INVALID when the message is not a Hello, API_REVISION when the revisions do not meet.
absl::StatusOr<HelloSpec> ParseHello(const v1::AttachRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_SESSION_PROTO_H_
