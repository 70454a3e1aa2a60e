// A worker's connection to kvtriaged. Attaching, lending and calling in one object.
//
// Thread-safe: many threads may use one Session; calls about one sequence are ordered by the
// caller. Every call ends by its deadline, or a bounded time after it when a call that writes was
// cut off and its fate has to be settled. When the service restarts, a background thread attaches
// anew and registers everything again under the same handles; calls return kUnavailable meanwhile.
// A process that forks must not use the child's copy: its calls fail at once.
#ifndef KVTRIAGE_CLIENT_SESSION_H_
#define KVTRIAGE_CLIENT_SESSION_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtriage/blend.h"
#include "kvtriage/cache_description.h"
#include "kvtriage/compress.h"
#include "kvtriage/layer_stream.h"
#include "kvtriage/observe.h"
#include "kvtriage/recompute.h"
#include "kvtriage/server_info.h"

namespace kvtriage::client {

inline constexpr char kDefaultEndpoint[] = "/run/kvtriage/kvtriage.sock";

struct ConnectOptions {
  std::string endpoint = kDefaultEndpoint;  // path of the service's main Unix socket
  std::string client = "kvtriage-cpp";      // "name/version", [A-Za-z0-9._/-], at most 64 bytes
  uint32_t rank = 0, world_size = 0;        // for the service's log only
  std::optional<uid_t> server_uid;  // trusted beside uid 0 and our own; descriptors go to no other
  uint64_t connect_ms = 5000;       // limit of each try to attach
  // How long a call whose fate is unknown may take to settle it after its deadline: 5 s and the
  // longest job the service allows.
  uint64_t settle_ms = 35000;
};

struct CallOptions {
  uint64_t deadline_ms = 30000;
  // Repeat a call that was refused for load (at most 3 times, after the pause the service asked
  // for, within the deadline). Off for an engine that would rather go on uncompressed.
  bool retry = true;
};

// Memory, and the caches in it: all or nothing. At most 32 regions a call.
struct Registration {
  std::vector<RegionSpec> regions;
  std::vector<CacheSpec> caches;  // may use Region::OfThisCall
};
struct Registered {  // same order
  std::vector<Region> regions;
  std::vector<Cache> caches;
};

struct RegionStatus {
  Region region;  // handle 0 when the service lists one that this session does not know
  uint32_t tag = 0;
  uint64_t size = 0;
  Access access = Access::kRead;
  uint32_t pins = 0;
  bool retiring = false;
};
struct CacheStatus {
  Cache cache;
  uint32_t layers = 0;
  std::vector<Region> regions;
};
struct MemoryList {
  std::vector<RegionStatus> regions;
  std::vector<CacheStatus> caches;
};

struct Released {
  uint32_t released = 0, already_gone = 0;
};

struct SessionState {
  bool alive = false;  // attached, bound and everything registered
  uint64_t epoch = 0;  // of the last attachment
  uint64_t session_id = 0;
  pid_t server_pid = 0;  // as the fd socket shows it; 0 in another PID namespace
  uid_t server_uid = 0;
  gid_t server_gid = 0;
  bool draining = false;     // the service announced its end
  bool device_sick = false;  // expect kUnavailable until it restarts
  uint32_t attachments = 0;  // 1 after Connect
  absl::Status last_error;   // of the last try to attach anew; OK when alive
};

class Session {
 public:
  // Attaches and binds. UNAVAILABLE (socket_missing, not_kvtriage), PERMISSION_DENIED
  // (socket_denied, fd_socket_denied, server_untrusted), FAILED_PRECONDITION (api_revision), and
  // what the service refuses.
  static absl::StatusOr<std::unique_ptr<Session>> Connect(const ConnectOptions& options);
  // Says goodbye: the service unregisters everything. Waits at most a second for it, and one more
  // for memory that has an owner (RegionSpec::owner).
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool alive() const;
  SessionState state() const;
  // False after `timeout_ms`.
  bool WaitAlive(uint64_t timeout_ms) const;

  absl::StatusOr<Registered> Register(const Registration& what, const CallOptions& options = {});
  // Returns when the service has closed its mappings: OK means that the memory may be freed. On
  // DEADLINE_EXCEEDED it may not; call again. A cache goes with any of its regions. Handles that
  // are not registered are skipped.
  absl::Status Unregister(const std::vector<Region>& regions, const std::vector<Cache>& caches,
                          const CallOptions& options = {.deadline_ms = 10000});
  absl::Status UnregisterAll(const CallOptions& options = {.deadline_ms = 10000});
  absl::StatusOr<MemoryList> ListRegions(const CallOptions& options = {}) const;

  // Never ends in doubt: whatever happens to the service or the call, `fates` say what is true of
  // the cache. Until it returns, the engine neither runs nor frees the sequences in the request.
  CompressOutcome Compress(const CompressRequest& request, const CallOptions& options = {});
  // The same, layer by layer: kvtriage/layer_stream.h. The request's layers are those that will
  // come; kPerSequence sets are refused. The deadline is that of the whole stream. An error:
  // nothing happened to the cache.
  absl::StatusOr<std::unique_ptr<LayerStream>> OpenLayers(const CompressRequest& request,
                                                          const CallOptions& options = {});
  absl::StatusOr<RecomputeResult> SelectRecompute(const RecomputeRequest& request,
                                                  const CallOptions& options = {});
  // Keys turned to other positions, and recomputed rows written back. Neither ends in doubt; until
  // it returns, the engine neither runs nor frees the sequence.
  RowsOutcome Rerotate(const RerotateRequest& request, const CallOptions& options = {});
  RowsOutcome Fuse(const FuseRequest& request, const CallOptions& options = {});
  // Decode-time eviction: new rows are added to the service's running scores, and sequences over
  // their budget are cut back. Ends like Compress, never in doubt.
  ObserveOutcome Observe(const ObserveRequest& request, const CallOptions& options = {});
  // Draft rows were rejected: the scores are as if they had never come. An error: nothing was
  // forgotten, or the session, and its running scores, are gone. NOT_FOUND (sequence_unknown):
  // there are no scores; FAILED_PRECONDITION (rewind_too_far).
  absl::StatusOr<RewindResult> Rewind(const RewindRequest& request,
                                      const CallOptions& options = {});
  // When it returns OK, no job touches the rows of these sequences: their blocks may be reused.
  // Their running scores are gone: the same ids are new sequences.
  absl::StatusOr<Released> ReleaseSequences(const std::vector<uint64_t>& sequence_ids,
                                            const CallOptions& options = {});

  // The doctor's round trip: the service's FNV-1a 64 over the bytes; or it writes word i =
  // splitmix64(seed + i) first.
  absl::StatusOr<uint64_t> Checksum(Region region, uint64_t offset, uint64_t length,
                                    const CallOptions& options = {});
  absl::StatusOr<uint64_t> WritePattern(Region region, uint64_t offset, uint64_t length,
                                        uint64_t seed, const CallOptions& options = {});

  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options = {}) const;

  // Whether the blocks of CompressOutcome::quarantine may be reused: the service that might still
  // write into them is gone or has closed the session. Never blocks.
  bool Quiet(uint64_t quarantine) const;

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_SESSION_H_
