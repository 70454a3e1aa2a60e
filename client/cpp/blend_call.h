// One Rerotate or Fuse over one link, to its settled end.
#ifndef KVTRIAGE_CLIENT_CPP_BLEND_CALL_H_
#define KVTRIAGE_CLIENT_CPP_BLEND_CALL_H_

#include "client/cpp/link.h"
#include "kvtriage/blend.h"
#include "kvtriage/session.h"

namespace kvtriage::client {

// `cache` describes request.cache. A `quarantine` in the result is 1: the session makes it a
// ticket.
RowsOutcome RunRerotate(Link& link, const CacheSpec& cache, const RerotateRequest& request,
                        const CallOptions& options, absl::Duration settle);
RowsOutcome RunFuse(Link& link, const CacheSpec& cache, const FuseRequest& request,
                    const CallOptions& options, absl::Duration settle);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_BLEND_CALL_H_
