// One Compress over one link, to its settled end.
#ifndef KVTRIAGE_CLIENT_CPP_COMPRESS_CALL_H_
#define KVTRIAGE_CLIENT_CPP_COMPRESS_CALL_H_

#include <cstdint>
#include <vector>

#include "client/cpp/link.h"
#include "kvtriage/compress.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

// `cache` describes request.cache. A `quarantine` in the result is 1: the session makes it a
// ticket.
CompressOutcome RunCompress(Link& link, const CacheSpec& cache, const CompressRequest& request,
                            const CallOptions& options, absl::Duration settle);

// Slots of a block of the cache; 1 for a cache without layers, which the service refuses.
uint32_t BlockSlotsOf(const CacheSpec& cache);

// KV heads of each layer of a call; 0 for a layer that the cache does not have, which is refused.
std::vector<uint32_t> HeadsOf(const CacheSpec& cache, const std::vector<int32_t>& layers);

// An outcome without effect: nothing was sent, or the service refused.
CompressOutcome WithoutEffect(const CompressRequest& request, Outcome outcome, absl::Status status);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_COMPRESS_CALL_H_
