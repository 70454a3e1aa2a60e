// What the service says about itself: Welcome and GetServerInfo. No gRPC.
#ifndef KVTRIAGE_SERVICE_RPC_SERVER_INFO_H_
#define KVTRIAGE_SERVICE_RPC_SERVER_INFO_H_

#include "kvtriage/v1/session.pb.h"
#include "service/rpc/rpc_core.h"

namespace kvtriage {

v1::Limits LimitsMessage(const Limits& limits);
// The host: the only device of the CPU backend.
v1::Device DeviceMessage(bool sick);

void FillWelcome(const RpcCore& core, const Session& session, uint32_t api_revision,
                 v1::Welcome& welcome);
void FillServerInfo(const RpcCore& core, v1::GetServerInfoResponse& response);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_SERVER_INFO_H_
