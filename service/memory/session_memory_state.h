// Inside SessionMemory. Only its own sources include this.
#ifndef KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_STATE_H_
#define KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_STATE_H_

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "kernels/core/mutex.h"
#include "service/memory/mapper.h"
#include "service/memory/region.h"
#include "service/memory/session_memory.h"
#include "service/memory/ticket_box.h"

namespace kvtriage {

// Lock order: `mutex` is the region registry's; nothing is taken under it, and no callback,
// mapping, closing or observer runs under it.
struct SessionMemory::State : std::enable_shared_from_this<SessionMemory::State> {
  using RegisterDone = std::function<void(absl::StatusOr<RegisteredIds>)>;
  using UnregisterDone = std::function<void(absl::StatusOr<UnregisterCounts>)>;
  using Regions = std::map<uint64_t, std::shared_ptr<Region>>;

  // An Unregister that waits for mappings to close.
  struct Wait {
    std::set<uint64_t> open;
    UnregisterCounts counts;
    UnregisterDone done;  // empty once called
  };

  State(Mapper& mapper, const MemoryQuota& quota, MappingObserver* observer,
        const DeviceList* devices)
      : mapper(mapper), quota(quota), observer(observer), devices(devices) {}

  // A mapper's thread.
  void OnRegionClosed(uint64_t region_id, DeviceIndex memory, uint64_t bytes);
  void OnRegistrationOver(uint64_t number);

  // Moves out of `fds` what it takes: all or nothing.
  absl::StatusOr<std::vector<uint64_t>> AddTickets(std::vector<UniqueFd>& fds);
  void DropExpiredTickets();

  // Retires what the spec names and calls `done` when all of it is closed.
  void Retire(const UnregisterSpec& spec, std::optional<uint32_t> deadline_ms, UnregisterDone done);
  std::shared_ptr<Wait> MoveToRetiring(const UnregisterSpec& spec,
                                       std::vector<std::shared_ptr<Region>>& retired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void OnDeadline(const std::shared_ptr<Wait>& wait);

  // Waits that are over now that `id` is closed.
  using Answers = std::vector<std::pair<UnregisterDone, UnregisterCounts>>;
  Answers AnsweredBy(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  Mapper& mapper;
  const MemoryQuota quota;
  MappingObserver* const observer;
  const DeviceList* const devices;

  Mutex mutex;
  TicketBox tickets ABSL_GUARDED_BY(mutex);
  Regions live ABSL_GUARDED_BY(mutex);
  Regions retiring ABSL_GUARDED_BY(mutex);  // until unmapped
  std::map<uint64_t, std::shared_ptr<const RegisteredCache>> caches ABSL_GUARDED_BY(mutex);
  uint64_t mapped_bytes ABSL_GUARDED_BY(mutex) =
      0;  // live and retiring; grows on the host mapper's thread only
  std::vector<std::shared_ptr<Wait>> waits ABSL_GUARDED_BY(mutex);
  // Numbers of registrations under way, from 1; no id of a region is that low. They may have opened
  // something, so the session's end waits for them too.
  std::set<uint64_t> registering ABSL_GUARDED_BY(mutex);
  uint64_t next_registration ABSL_GUARDED_BY(mutex) = 1;
  bool closing ABSL_GUARDED_BY(mutex) = false;  // RetireAll was called
};

absl::Status SessionEnded();

// The regions that a cache's views name, each once, in order of first mention.
std::vector<uint64_t> RegionsOf(const CacheSpec& cache);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_STATE_H_
