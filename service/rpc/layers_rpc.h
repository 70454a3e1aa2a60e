// CompressLayers: one stream from its first message to its end.
#ifndef KVTRIAGE_SERVICE_RPC_LAYERS_RPC_H_
#define KVTRIAGE_SERVICE_RPC_LAYERS_RPC_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "kvtriage/v1/triage.pb.h"
#include "service/rpc/rpc_core.h"

namespace kvtriage {

// The reactor of a new stream, which finishes it exactly once, whatever happens. `core` outlives
// it.
grpc::ServerBidiReactor<v1::CompressLayersRequest, v1::CompressLayersResponse>* StartLayersStream(
    RpcCore& core, grpc::CallbackServerContext* context);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_LAYERS_RPC_H_
