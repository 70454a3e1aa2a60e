// Everything that one session has lent: tickets, regions and cache descriptions. An id is looked up
// in the caller's own SessionMemory and nowhere else, so another session's id, a closed one and a
// guess are the same NOT_FOUND. Thread-safe; nothing here maps or unmaps on the caller's thread.
#ifndef KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_H_
#define KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/memory/mapping.h"
#include "service/memory/unique_fd.h"
#include "service/policy/cache_spec.h"
#include "service/policy/register_spec.h"

namespace kvtriage {

class DeviceList;  // the CUDA devices that are served
class Mapper;      // the thread that maps and unmaps host memory
class Region;      // one mapping; retires when unregistered, closes on the mapper when its last pin
                   // drops

// A short use of a mapping. Move-only; while one lives the memory stays mapped.
class RegionPin {
 public:
  RegionPin() = default;
  explicit RegionPin(
      std::shared_ptr<Region> region);  // counts up; only SessionMemory makes new ones
  RegionPin(RegionPin&& other) noexcept;
  RegionPin& operator=(RegionPin&& other) noexcept;
  ~RegionPin();  // counts down

  std::byte* data() const;     // to be read and written here only when memory() is kHostMemory
  DeviceIndex memory() const;  // where it lies
  uint64_t size() const;
  bool writable() const;
  explicit operator bool() const { return region_ != nullptr; }
  const Region& region() const { return *region_; }  // where it lies

 private:
  std::shared_ptr<Region> region_;
};

// A registered cache: its views name real region ids, and every range was checked.
struct RegisteredCache {
  uint64_t cache_id = 0;
  uint32_t tag = 0;
  CacheSpec spec;
  DeviceIndex memory = kHostMemory;  // of all its views
};

struct RegisteredIds {
  std::vector<uint64_t> region_ids, cache_ids;  // in request order
};

struct UnregisterSpec {
  std::vector<uint64_t> region_ids, cache_ids;
  bool everything = false;
};

struct UnregisterCounts {
  uint32_t closed = 0;  // mappings of this call that are closed now (a cache has none of its own)
  uint32_t already_gone = 0;  // ids that named nothing
};

struct RegionListing {
  uint64_t region_id = 0;
  uint32_t tag = 0;
  uint64_t size = 0;
  bool writable = false;
  uint32_t pins = 0;
  bool retiring = false;
  DeviceIndex memory = kHostMemory;
};

struct CacheListing {
  uint64_t cache_id = 0;
  uint32_t tag = 0;
  uint32_t layers = 0;
  std::vector<uint64_t> region_ids;
};

struct MemoryQuota {
  uint32_t max_regions = 512;
  uint32_t max_caches = 16;
  uint64_t max_host_bytes = uint64_t{4} << 40;
  uint32_t max_tickets = 32;
  uint32_t ticket_life_ms = 30000;
};

// Told of every change of the process's totals (metrics), once each per region and in this order.
// Thread-safe, quick; called without locks held. It outlives the mappers.
class MappingObserver {
 public:
  virtual ~MappingObserver() = default;
  virtual void OnMapped(DeviceIndex memory, uint64_t bytes) = 0;  // mapper's thread
  virtual void OnRetiring() = 0;                                  // an unmapping is due; any thread
  virtual void OnUnmapped(DeviceIndex memory,
                          uint64_t bytes) = 0;  // mapper's thread, before `done` of an Unregister
};

class SessionMemory {
 public:
  // `mapper`, `observer` (may be null) and `devices` (null: none) outlive it, or its RetireAll and
  // all pins.
  SessionMemory(Mapper& mapper, const MemoryQuota& quota, MappingObserver* observer,
                const DeviceList* devices = nullptr);
  ~SessionMemory();  // retires everything; mappings close when their last pin drops

  // Takes checked memfds, all or none; each ticket works once, within 30 s. QUOTA_BYTES when more
  // than 32 would wait, SESSION_ENDED after RetireAll.
  absl::StatusOr<std::vector<uint64_t>> AddTickets(std::vector<UniqueFd> fds);
  absl::StatusOr<uint64_t> AddTicket(UniqueFd fd);
  void DropExpiredTickets();
  void DropTickets();

  // All or nothing; maps on the mappers' threads and calls `done` on one of them, when whatever was
  // opened for a registration that fails is closed again. A ticket that is named is used up, also
  // when the registration fails. Errors name regions[i] or caches[i]: TICKET_UNKNOWN, FD_TOO_SMALL,
  // REGION_READ_ONLY, FIELD_INVALID (offset not on a page), QUOTA_BYTES, MAP_FAILED,
  // FINGERPRINT_MISMATCH, MEMORY_UNKNOWN, GEOMETRY_OVERFLOW, RANGE_OUT_OF_REGION, VIEW_OVERLAP,
  // MIXED_MEMORY, SESSION_ENDED; for CUDA regions also NO_DEVICE, GPU_NOT_VISIBLE, MIG_UNSUPPORTED,
  // PID_COLLISION and what DeviceMemory::Open says.
  void Register(RegisterSpec spec, std::function<void(absl::StatusOr<RegisteredIds>)> done);

  // Retires at once: new pins and lookups fail, and with a region go the caches that use it. `done`
  // on a mapper's thread when the mappings are closed (regions that retire already are waited for
  // too), or REGION_RETIRING at `deadline_ms` from now: still retiring, call again.
  void Unregister(UnregisterSpec spec, uint32_t deadline_ms,
                  std::function<void(absl::StatusOr<UnregisterCounts>)> done);

  // MEMORY_UNKNOWN (one text for all causes), field "region_id" or "cache_id".
  absl::StatusOr<RegionPin> Pin(uint64_t region_id);
  absl::StatusOr<std::shared_ptr<const RegisteredCache>> FindCache(uint64_t cache_id);

  // Which memory they lie in; the host's when they are not known.
  DeviceIndex DeviceOfRegion(uint64_t region_id);
  DeviceIndex DeviceOfCache(uint64_t cache_id);

  std::vector<RegionListing> ListRegions();
  std::vector<CacheListing> ListCaches();

  // End of the session: everything retires; `done` (a mapper's thread) when the last mapping is
  // closed.
  void RetireAll(std::function<void()> done);

  struct State;  // its sources' own

 private:
  std::shared_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_H_
