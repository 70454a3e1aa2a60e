#include "service/session/session.h"

namespace kvtriage {

std::string_view EndCauseName(EndCause cause) {
  switch (cause) {
    case EndCause::kClient:
      return "client";
    case EndCause::kLease:
      return "lease";
    case EndCause::kPeerDied:
      return "peer_died";
    case EndCause::kDrain:
      return "drain";
    case EndCause::kProtocol:
      return "protocol";
  }
  return "unknown";
}

}  // namespace kvtriage
