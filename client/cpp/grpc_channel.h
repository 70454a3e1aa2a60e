// What the two files that include gRPC share.
#ifndef KVTRIAGE_CLIENT_CPP_GRPC_CHANNEL_H_
#define KVTRIAGE_CLIENT_CPP_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <memory>

#include "absl/status/status.h"

namespace kvtriage::client {

struct GrpcChannel {
  std::shared_ptr<grpc::Channel> channel;
};

// Codes of gRPC and absl are the same numbers; details come along when the service sent some.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_GRPC_CHANNEL_H_
