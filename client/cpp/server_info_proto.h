// What a service says about itself and about this session's memory, from messages.
#ifndef KVTRIAGE_CLIENT_CPP_SERVER_INFO_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_SERVER_INFO_PROTO_H_

#include "client/cpp/memory_ids.h"
#include "kvtriage/server_info.h"
#include "kvtriage/session.h"
#include "kvtriage/v1/memory.pb.h"
#include "kvtriage/v1/session.pb.h"

namespace kvtriage::client {

ServerInfo FromProto(const v1::GetServerInfoResponse& response);
MemoryList FromProto(const v1::ListRegionsResponse& response, const MemoryIds& ids);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_SERVER_INFO_PROTO_H_
