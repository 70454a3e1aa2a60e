// What this session has lent, so that it can be lent again to a restarted service. Holds duplicates
// of the descriptors.
#ifndef KVTRIAGE_CLIENT_CPP_MEMORY_BOOK_H_
#define KVTRIAGE_CLIENT_CPP_MEMORY_BOOK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/cpp/owned_fd.h"
#include "kernels/core/mutex.h"
#include "kvtriage/cache_description.h"

namespace kvtriage::client {

struct LentRegion {
  Region region;
  RegionSpec spec;              // fd is `fd`'s
  std::shared_ptr<OwnedFd> fd;  // null for device memory
};
struct LentCache {
  Cache cache;
  CacheSpec spec;  // regions by handle, or Region::OfThisCall until Resolve
};

// Memory that is registered in one call.
struct Lot {
  std::vector<LentRegion> regions;
  std::vector<LentCache> caches;
};

// Thread-safe.
class MemoryBook {
 public:
  MemoryBook();

  // New handles and duplicated descriptors for a registration; nothing is entered yet.
  // INVALID_ARGUMENT for a bad descriptor.
  absl::StatusOr<Lot> Prepare(const std::vector<RegionSpec>& regions,
                              const std::vector<CacheSpec>& caches);

  // Enters what the service accepted. Region::OfThisCall in the caches becomes the handle.
  void Enter(Lot lot);

  // Takes out these regions, every cache that uses one, and these caches. Returns what was there.
  Lot Remove(const std::vector<Region>& regions, const std::vector<Cache>& caches);
  // What Remove would take out.
  Lot Find(const std::vector<Region>& regions, const std::vector<Cache>& caches) const;
  Lot All() const;

  std::optional<CacheSpec> SpecOf(Cache cache) const;

  // Whether any region has an owner that waits for its return.
  bool HoldsOwners() const;
  // Gives these owners up for good: their memory stays as it is until the process ends.
  void AbandonOwners();

 private:
  Lot FindLocked(const std::vector<Region>& regions, const std::vector<Cache>& caches) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  uint64_t next_handle_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, LentRegion> regions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, LentCache> caches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_MEMORY_BOOK_H_
