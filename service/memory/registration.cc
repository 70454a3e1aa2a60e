// RegisterRegions, on the mapper's thread: cheap checks of everything first, then mappings, then
// one commit under the lock. Whatever was opened on the way closes itself when a step fails.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/memory/cache_placement.h"
#include "service/memory/memfd.h"
#include "service/memory/memory_unknown.h"
#include "service/memory/random_bytes.h"
#include "service/memory/session_memory_state.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

// Ids of the request's own regions inside its caches: 1-based indexes.
constexpr uint64_t kFirstRealId = uint64_t{1} << 32;

std::string RegionField(size_t index, std::string_view field) {
  return absl::StrCat("regions[", index, "].", absl::string_view(field.data(), field.size()));
}

class Registration {
 public:
  Registration(SessionMemory::State& state, const RegisterSpec& spec)
      : state_(state), spec_(spec) {}

  absl::StatusOr<RegisteredIds> Run() {
    KVTRIAGE_RETURN_IF_ERROR(TakeTickets());
    KVTRIAGE_RETURN_IF_ERROR(CheckQuotas());
    for (size_t i = 0; i < spec_.regions.size(); ++i) KVTRIAGE_RETURN_IF_ERROR(CheckRegion(i));
    KVTRIAGE_RETURN_IF_ERROR(CheckCaches());
    for (size_t i = 0; i < spec_.regions.size(); ++i) KVTRIAGE_RETURN_IF_ERROR(MapRegion(i));
    return Commit();
  }

 private:
  absl::Status TakeTickets();
  absl::Status CheckQuotas();
  absl::Status CheckRegion(size_t index);
  absl::Status CheckCaches();
  absl::Status MapRegion(size_t index);
  absl::StatusOr<RegisteredIds> Commit();

  RegisteredIds MintIds();
  CacheSpec WithRealIds(CacheSpec cache, const std::vector<uint64_t>& region_ids) const;
  bool StillLive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex);

  SessionMemory::State& state_;
  const RegisterSpec& spec_;
  std::vector<UniqueFd> fds_;
  std::vector<LentRange> ranges_;        // of the request's regions
  std::map<uint64_t, LentRange> older_;  // of earlier regions that its caches name
  std::vector<HostMapping> mappings_;
  uint64_t new_bytes_ = 0;
};

absl::Status Registration::TakeTickets() {
  // All tickets that are named are used up, also by a registration that fails.
  state_.DropExpiredTickets();
  std::optional<size_t> unknown;
  MutexLock lock(&state_.mutex);
  if (state_.closing) return SessionEnded();
  for (size_t i = 0; i < spec_.regions.size(); ++i) {
    std::optional<UniqueFd> fd = state_.tickets.Take(spec_.regions[i].ticket);
    if (!fd && !unknown) unknown = i;
    fds_.push_back(fd ? std::move(*fd) : UniqueFd());
  }
  if (!unknown) return absl::OkStatus();
  return Error(ErrorReason::kTicketUnknown, RegionField(*unknown, "host.ticket"),
               "no such ticket: unknown, used, expired or of another session");
}

absl::Status Registration::CheckQuotas() {
  MutexLock lock(&state_.mutex);
  const uint64_t regions = state_.live.size() + state_.retiring.size() + spec_.regions.size();
  if (regions > state_.quota.max_regions) {
    return Error(ErrorReason::kQuotaBytes, "regions", "more regions than a session may have")
        .Got(regions)
        .Limit(state_.quota.max_regions);
  }
  const uint64_t caches = state_.caches.size() + spec_.caches.size();
  if (caches > state_.quota.max_caches) {
    return Error(ErrorReason::kQuotaBytes, "caches", "more caches than a session may have")
        .Got(caches)
        .Limit(state_.quota.max_caches);
  }
  new_bytes_ = state_.mapped_bytes;  // so far; CheckRegion adds to it
  return absl::OkStatus();
}

absl::Status Registration::CheckRegion(size_t index) {
  const RegionRequest& region = spec_.regions[index];
  const int fd = fds_[index].get();
  absl::StatusOr<MemfdFacts> facts = CheckMemfd(fd);
  if (!facts.ok()) return WithFieldPrefix(facts.status(), RegionField(index, "host.ticket"));
  if (!RangeFits(region.offset, region.size, facts->bytes)) {
    return Error(ErrorReason::kFdTooSmall, RegionField(index, "size"),
                 "region ends outside the memory file")
        .Got(region.size)
        .Limit(region.offset <= facts->bytes ? facts->bytes - region.offset : 0);
  }
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (region.offset % page != 0) {
    return Error(ErrorReason::kFieldInvalid, RegionField(index, "host.offset"),
                 "offset is not a multiple of the page size")
        .Got(region.offset)
        .Limit(page);
  }
  if (const absl::Status access = CheckMemfdAccess(fd, region.writable); !access.ok()) {
    return WithFieldPrefix(access, RegionField(index, "access"));
  }
  if (!RangeFits(region.fingerprint_offset, region.fingerprint.size(), region.size)) {
    return Error(ErrorReason::kRangeOutOfRegion, RegionField(index, "fingerprint"),
                 "fingerprint ends outside its region")
        .Got(region.fingerprint_offset)
        .Limit(region.size);
  }
  const std::optional<uint64_t> bytes = CheckedAdd(new_bytes_, region.size);
  if (!bytes || *bytes > state_.quota.max_host_bytes) {
    return Error(ErrorReason::kQuotaBytes, RegionField(index, "size"),
                 "more bytes than a session may lend")
        .Got(region.size)
        .Limit(state_.quota.max_host_bytes);
  }
  new_bytes_ = *bytes;
  ranges_.push_back({{facts->device, facts->inode, region.offset}, region.size});
  return absl::OkStatus();
}

absl::Status Registration::CheckCaches() {
  {
    MutexLock lock(&state_.mutex);
    for (const RegisterSpec::Cache& cache : spec_.caches) {
      for (const uint64_t id : RegionsOf(cache.spec)) {
        const auto found = state_.live.find(id);
        if (found != state_.live.end())
          older_[id] = {found->second->place(), found->second->bytes()};
      }
    }
  }
  const FindRange find = [this](uint64_t id) -> const LentRange* {
    if (id == 0) return nullptr;
    if (id < kFirstRealId) return id <= ranges_.size() ? &ranges_[id - 1] : nullptr;
    const auto found = older_.find(id);
    return found == older_.end() ? nullptr : &found->second;
  };
  for (size_t i = 0; i < spec_.caches.size(); ++i) {
    const absl::Status placed = CheckCachePlacement(spec_.caches[i].spec, find);
    if (!placed.ok()) return WithFieldPrefix(placed, absl::StrCat("caches[", i, "]."));
  }
  return absl::OkStatus();
}

absl::Status Registration::MapRegion(size_t index) {
  const RegionRequest& region = spec_.regions[index];
  absl::StatusOr<HostMapping> mapping =
      HostMapping::Map(fds_[index].get(), region.offset, region.size, region.writable);
  if (!mapping.ok()) return WithFieldPrefix(mapping.status(), RegionField(index, "host"));
  fds_[index].reset();
  mappings_.push_back(std::move(*mapping));
  FaultPoint("memory.after_map");
  const std::byte* found = mappings_.back().data() + region.fingerprint_offset;
  if (std::memcmp(found, region.fingerprint.data(), region.fingerprint.size()) != 0) {
    return Error(ErrorReason::kFingerprintMismatch, RegionField(index, "fingerprint"),
                 "the region does not hold the expected bytes: wrong offset or stale memory");
  }
  FaultPoint("memory.after_fingerprint");
  return absl::OkStatus();
}

RegisteredIds Registration::MintIds() {
  // Only this thread adds ids, so what is free now stays free until the commit.
  MutexLock lock(&state_.mutex);
  std::set<uint64_t> taken;
  const auto mint = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mutex) {
    uint64_t id = RandomId();
    while (state_.live.contains(id) || state_.retiring.contains(id) || state_.caches.contains(id) ||
           !taken.insert(id).second) {
      id = RandomId();
    }
    return id;
  };
  RegisteredIds ids;
  for (size_t i = 0; i < spec_.regions.size(); ++i) ids.region_ids.push_back(mint());
  for (size_t i = 0; i < spec_.caches.size(); ++i) ids.cache_ids.push_back(mint());
  return ids;
}

CacheSpec Registration::WithRealIds(CacheSpec cache,
                                    const std::vector<uint64_t>& region_ids) const {
  const auto resolve = [&region_ids](ViewSpec& view) {
    if (view.region_id < kFirstRealId) view.region_id = region_ids[view.region_id - 1];
  };
  for (LayerSpec& layer : cache.layers) {
    resolve(layer.k);
    resolve(layer.v);
    if (layer.k_scales) resolve(*layer.k_scales);
    if (layer.v_scales) resolve(*layer.v_scales);
    for (ViewSpec& companion : layer.companions) resolve(companion);
  }
  return cache;
}

bool Registration::StillLive() const {
  for (const auto& [id, range] : older_) {
    if (!state_.live.contains(id)) return false;
  }
  return true;
}

absl::StatusOr<RegisteredIds> Registration::Commit() {
  const RegisteredIds ids = MintIds();
  std::vector<std::shared_ptr<Region>> regions;
  for (size_t i = 0; i < mappings_.size(); ++i) {
    const RegionRequest& request = spec_.regions[i];
    regions.push_back(std::make_shared<Region>(
        std::move(mappings_[i]), ranges_[i].place, request.writable, request.tag, state_.mapper,
        [state = state_.shared_from_this(), id = ids.region_ids[i], bytes = request.size] {
          state->OnRegionClosed(id, bytes);
        }));
  }
  std::vector<std::shared_ptr<const RegisteredCache>> caches;
  for (size_t i = 0; i < spec_.caches.size(); ++i) {
    RegisteredCache cache{ids.cache_ids[i], spec_.caches[i].tag,
                          WithRealIds(spec_.caches[i].spec, ids.region_ids)};
    caches.push_back(std::make_shared<const RegisteredCache>(std::move(cache)));
  }
  // Told before anybody can retire them, so that no total ever goes below zero.
  if (state_.observer != nullptr) {
    for (const RegionRequest& region : spec_.regions) state_.observer->OnMapped(region.size);
  }
  absl::Status committed;
  {
    MutexLock lock(&state_.mutex);
    if (state_.closing) {
      committed = SessionEnded();
    } else if (!StillLive()) {
      committed = MemoryUnknown("caches");
    } else {
      for (size_t i = 0; i < regions.size(); ++i) state_.live[ids.region_ids[i]] = regions[i];
      for (const auto& cache : caches) state_.caches[cache->cache_id] = cache;
      for (const RegionRequest& region : spec_.regions) state_.mapped_bytes += region.size;
    }
  }
  if (committed.ok()) return ids;
  regions.clear();
  if (state_.observer != nullptr) {
    for (const RegionRequest& region : spec_.regions) {
      state_.observer->OnRetiring();
      state_.observer->OnUnmapped(region.size);
    }
  }
  return committed;
}

}  // namespace

absl::StatusOr<RegisteredIds> SessionMemory::State::RegisterNow(const RegisterSpec& spec) {
  return Registration(*this, spec).Run();
}

}  // namespace kvtriage
