// Cache descriptions as messages.
#ifndef KVTRIAGE_CLIENT_CPP_CACHE_TO_PROTO_H_
#define KVTRIAGE_CLIENT_CPP_CACHE_TO_PROTO_H_

#include "client/cpp/memory_ids.h"
#include "kvtriage/cache_description.h"
#include "kvtriage/v1/memory.pb.h"
#include "kvtriage/v1/types.pb.h"

namespace kvtriage::client {

v1::View ToProto(const ViewSpec& view, const MemoryIds& ids);
v1::Tensor ToProto(const TensorSpec& tensor, const MemoryIds& ids);
v1::CacheSpec ToProto(const CacheSpec& cache, const MemoryIds& ids);
// `ticket` is for host memory. Device memory is said to be of the calling process.
v1::RegionSpec ToProto(const RegionSpec& region, uint64_t ticket, bool with_fingerprint);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_CACHE_TO_PROTO_H_
