// The API's services. They check, hand on and answer; nothing in them blocks.
#ifndef KVTRIAGE_SERVICE_RPC_SERVICES_H_
#define KVTRIAGE_SERVICE_RPC_SERVICES_H_

#include <grpcpp/impl/codegen/service_type.h>

#include <memory>

#include "service/rpc/rpc_core.h"

namespace kvtriage {

// `core` outlives the service.
std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeMemoryService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeAdminService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeTriageService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeBlendService(RpcCore& core);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_SERVICES_H_
