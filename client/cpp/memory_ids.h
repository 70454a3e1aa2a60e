// The service's ids of our handles, for one attachment. A new attachment has new ids.
#ifndef KVTRIAGE_CLIENT_CPP_MEMORY_IDS_H_
#define KVTRIAGE_CLIENT_CPP_MEMORY_IDS_H_

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "kernels/core/mutex.h"
#include "kvtriage/cache_description.h"

namespace kvtriage::client {

// Handles that this session gives out start here; smaller ones are indices into one Registration.
inline constexpr uint64_t kFirstHandle = uint64_t{1} << 32;

// No region or cache has it: the service answers MEMORY_UNKNOWN and names the field.
inline constexpr uint64_t kUnknownId = ~uint64_t{0};

// Thread-safe.
class MemoryIds {
 public:
  void Set(Region region, uint64_t id) { Put(regions_, region.handle, id); }
  void Set(Cache cache, uint64_t id) { Put(caches_, cache.handle, id); }
  void Remove(Region region) { Put(regions_, region.handle, 0); }
  void Remove(Cache cache) { Put(caches_, cache.handle, 0); }

  uint64_t IdOf(Region region) const {
    return region.handle < kFirstHandle ? region.handle : Get(regions_, region.handle);
  }
  uint64_t IdOf(Cache cache) const { return Get(caches_, cache.handle); }

  Region RegionOf(uint64_t id) const { return Region{Reverse(regions_, id)}; }
  Cache CacheOf(uint64_t id) const { return Cache{Reverse(caches_, id)}; }

 private:
  using Map = std::map<uint64_t, uint64_t>;

  void Put(Map& map, uint64_t handle, uint64_t id) {
    MutexLock lock(&mutex_);
    if (id == 0) {
      map.erase(handle);
    } else {
      map[handle] = id;
    }
  }
  uint64_t Get(const Map& map, uint64_t handle) const {
    MutexLock lock(&mutex_);
    const auto found = map.find(handle);
    return found == map.end() ? kUnknownId : found->second;
  }
  uint64_t Reverse(const Map& map, uint64_t id) const {
    MutexLock lock(&mutex_);
    for (const auto& [handle, known] : map) {
      if (known == id) return handle;
    }
    return 0;
  }

  mutable Mutex mutex_;
  Map regions_, caches_;  // guarded by mutex_, through the three functions above
};

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_MEMORY_IDS_H_
