// Everything that one session has lent: tickets, regions and cache descriptions. An id is looked up in
// the caller's own SessionMemory and nowhere else, so another session's id, a closed one and a guess are
// the same NOT_FOUND. Thread-safe; nothing here maps or unmaps on the caller's thread.
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
#include "service/memory/unique_fd.h"
#include "service/policy/cache_spec.h"
#include "service/policy/register_spec.h"

namespace kvtriage {

class Mapper;  // the thread that maps and unmaps host memory
class Region;  // one mapping; retires when unregistered, closes on the mapper when its last pin drops

// A short use of a mapping. Move-only; while one lives the memory stays mapped.
class RegionPin {
 public:
  RegionPin() = default;
  explicit RegionPin(std::shared_ptr<Region> region);  // counts up
  RegionPin(RegionPin&& other) noexcept;
  RegionPin& operator=(RegionPin&& other) noexcept;
  ~RegionPin();  // counts down

  std::byte* data() const;
  uint64_t size() const;
  bool writable() const;
  explicit operator bool() const { return region_ != nullptr; }

 private:
  std::shared_ptr<Region> region_;
};

// A registered cache: its views name real region ids, and every range was checked.
struct RegisteredCache {
  uint64_t cache_id = 0;
  uint32_t tag = 0;
  CacheSpec spec;
};

struct RegisteredIds {
  std::vector<uint64_t> region_ids, cache_ids;  // in request order
};

struct UnregisterSpec {
  std::vector<uint64_t> region_ids, cache_ids;
  bool everything = false;
};

struct UnregisterCounts {
  uint32_t closed = 0, already_gone = 0;
};

struct RegionListing {
  uint64_t region_id = 0;
  uint32_t tag = 0;
  uint64_t size = 0;
  bool writable = false;
  uint32_t pins = 0;
  bool retiring = false;
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
};

// Told of every change of the process's totals (metrics). Called from the mapper's thread.
class MappingObserver {
 public:
  virtual ~MappingObserver() = default;
  virtual void OnMapped(uint64_t bytes) = 0;
  virtual void OnRetiring() = 0;   // an unmapping is due
  virtual void OnUnmapped(uint64_t bytes) = 0;
};

class SessionMemory {
 public:
  SessionMemory(Mapper& mapper, const MemoryQuota& quota, MappingObserver* observer);
  ~SessionMemory();

  // Takes a checked memfd; the ticket works once, within 30 s. QUOTA_BYTES when 32 wait already.
  absl::StatusOr<uint64_t> AddTicket(UniqueFd fd);
  void DropTickets();

  // All or nothing; maps on the mapper thread and calls `done` there. Errors name regions[i] or caches[i]:
  // TICKET_UNKNOWN, FD_TOO_SMALL, REGION_READ_ONLY, FIELD_INVALID (offset not on a page), QUOTA_BYTES,
  // MAP_FAILED, FINGERPRINT_MISMATCH, MEMORY_UNKNOWN, RANGE_OUT_OF_REGION, VIEW_OVERLAP.
  void Register(RegisterSpec spec, std::function<void(absl::StatusOr<RegisteredIds>)> done);

  // Retires at once (new pins and lookups fail); `done` when the mappings are closed, or REGION_RETIRING
  // at `deadline_ms` from now (still retiring; call again).
  void Unregister(UnregisterSpec spec, uint32_t deadline_ms,
                  std::function<void(absl::StatusOr<UnregisterCounts>)> done);

  // MEMORY_UNKNOWN (one text for all causes), field "region_id".
  absl::StatusOr<RegionPin> Pin(uint64_t region_id);
  absl::StatusOr<std::shared_ptr<const RegisteredCache>> FindCache(uint64_t cache_id);

  std::vector<RegionListing> ListRegions();
  std::vector<CacheListing> ListCaches();

  // End of the session: everything retires; `done` (mapper thread) when the last mapping is closed.
  void RetireAll(std::function<void()> done);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_SESSION_MEMORY_H_
