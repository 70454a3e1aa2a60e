// The checks of a registration, its host mappings and its commit: on the host mapper's thread.
#include "service/memory/registration.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/memory/memfd.h"
#include "service/memory/memory_unknown.h"
#include "service/memory/random_bytes.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

// Ids of the request's own regions inside its caches: 1-based indexes.
constexpr uint64_t kFirstRealId = uint64_t{1} << 32;

}  // namespace

std::string RegionField(size_t index, std::string_view field) {
  return absl::StrCat("regions[", index, "].", absl::string_view(field.data(), field.size()));
}

absl::Status Registration::Check() {
  KVTRIAGE_RETURN_IF_ERROR(TakeTickets());
  for (size_t i = 0; i < spec_.regions.size(); ++i) KVTRIAGE_RETURN_IF_ERROR(CheckRegion(i));
  return CheckQuotas();
}

absl::Status Registration::TakeTickets() {
  // All tickets that are named are used up, also by a registration that fails.
  state_->DropExpiredTickets();
  std::optional<size_t> unknown;
  MutexLock lock(&state_->mutex);
  if (state_->closing) return SessionEnded();
  for (size_t i = 0; i < spec_.regions.size(); ++i) {
    UniqueFd& fd = fds_.emplace_back();
    if (spec_.regions[i].cuda) continue;
    std::optional<UniqueFd> taken = state_->tickets.Take(spec_.regions[i].ticket);
    if (taken) {
      fd = std::move(*taken);
    } else if (!unknown) {
      unknown = i;
    }
  }
  if (!unknown) return absl::OkStatus();
  return Error(ErrorReason::kTicketUnknown, RegionField(*unknown, "host.ticket"),
               "no such ticket: unknown, used, expired or of another session");
}

absl::Status Registration::CheckQuotas() {
  MutexLock lock(&state_->mutex);
  const uint64_t regions = state_->live.size() + state_->retiring.size() + spec_.regions.size();
  if (regions > state_->quota.max_regions) {
    return Error(ErrorReason::kQuotaBytes, "regions", "more regions than a session may have")
        .Got(regions)
        .Limit(state_->quota.max_regions);
  }
  const uint64_t caches = state_->caches.size() + spec_.caches.size();
  if (caches > state_->quota.max_caches) {
    return Error(ErrorReason::kQuotaBytes, "caches", "more caches than a session may have")
        .Got(caches)
        .Limit(state_->quota.max_caches);
  }
  uint64_t lent = state_->mapped_bytes;
  for (size_t i = 0; i < spec_.regions.size(); ++i) {
    const uint64_t size = spec_.regions[i].size;
    const std::optional<uint64_t> bytes = CheckedAdd(lent, size);
    if (!bytes || *bytes > state_->quota.max_host_bytes) {
      return Error(ErrorReason::kQuotaBytes, RegionField(i, "size"),
                   "more bytes than a session may lend")
          .Got(size)
          .Limit(state_->quota.max_host_bytes);
    }
    lent = *bytes;
  }
  return absl::OkStatus();
}

absl::Status Registration::CheckRegion(size_t index) {
  const RegionRequest& region = spec_.regions[index];
  ranges_[index].bytes = region.size;
  KVTRIAGE_RETURN_IF_ERROR(region.cuda ? CheckCuda(index) : CheckHost(index));
  if (RangeFits(region.fingerprint_offset, region.fingerprint.size(), region.size)) {
    return absl::OkStatus();
  }
  return Error(ErrorReason::kRangeOutOfRegion, RegionField(index, "fingerprint"),
               "fingerprint ends outside its region")
      .Got(region.fingerprint_offset)
      .Limit(region.size);
}

absl::Status Registration::CheckHost(size_t index) {
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
  ranges_[index].place = {facts->device, facts->inode, region.offset, kHostMemory};
  return absl::OkStatus();
}

absl::Status Registration::CheckCuda(size_t index) {
  const RegionRequest& region = spec_.regions[index];
  const std::string field = RegionField(index, "cuda_ipc.");
  if (!RangeFits(region.cuda->base_offset, region.size, region.cuda->allocation_bytes)) {
    return Error(ErrorReason::kRangeOutOfRegion, field + "base_offset",
                 "the region ends outside its allocation")
        .Got(region.cuda->base_offset)
        .Limit(region.cuda->allocation_bytes);
  }
  if (state_->devices == nullptr) {
    return Error(ErrorReason::kNoDevice, field + "device_uuid", "no CUDA device is served here");
  }
  const absl::StatusOr<DeviceIndex> device = state_->devices->Find(region.cuda->device_uuid);
  if (!device.ok()) return WithField(device.status(), field + "device_uuid");
  // The driver would say something less clear. The numbers count, in whatever PID namespace.
  if (region.cuda->exporter_pid == static_cast<uint32_t>(::getpid())) {
    return Error(ErrorReason::kPidCollision, field + "exporter_pid",
                 "worker and service have the same PID number: the driver refuses that")
        .Got(region.cuda->exporter_pid);
  }
  ranges_[index].place = {0, 0, region.cuda->base_offset, *device};
  return absl::OkStatus();
}

absl::Status Registration::CheckCaches() {
  {
    MutexLock lock(&state_->mutex);
    for (const RegisterSpec::Cache& cache : spec_.caches) {
      for (const uint64_t id : RegionsOf(cache.spec)) {
        const auto found = state_->live.find(id);
        if (found != state_->live.end())
          older_[id] = {found->second->place(), found->second->bytes()};
      }
    }
  }
  const FindRange find = [this](uint64_t id) { return FindRangeOf(id); };
  for (size_t i = 0; i < spec_.caches.size(); ++i) {
    const absl::Status placed = CheckCachePlacement(spec_.caches[i].spec, find);
    if (!placed.ok()) return WithFieldPrefix(placed, absl::StrCat("caches[", i, "]."));
  }
  return absl::OkStatus();
}

const LentRange* Registration::FindRangeOf(uint64_t id) const {
  if (id == 0) return nullptr;
  if (id < kFirstRealId) return id <= ranges_.size() ? &ranges_[id - 1] : nullptr;
  const auto found = older_.find(id);
  return found == older_.end() ? nullptr : &found->second;
}

DeviceIndex Registration::DeviceOf(const CacheSpec& cache) const {
  return FindRangeOf(cache.layers.front().k.region_id)->place.memory;
}

absl::Status Registration::MapRegions() {
  for (size_t i = 0; i < spec_.regions.size(); ++i) {
    if (!spec_.regions[i].cuda) KVTRIAGE_RETURN_IF_ERROR(MapRegion(i));
  }
  return absl::OkStatus();
}

absl::Status Registration::MapRegion(size_t index) {
  const RegionRequest& region = spec_.regions[index];
  absl::StatusOr<std::unique_ptr<HostMapping>> mapping =
      HostMapping::Map(fds_[index].get(), region.offset, region.size, region.writable);
  if (!mapping.ok()) return WithFieldPrefix(mapping.status(), RegionField(index, "host"));
  fds_[index].reset();
  FaultPoint("memory.after_map");
  const std::byte* found = (*mapping)->data() + region.fingerprint_offset;
  mappings_[index] = *std::move(mapping);
  if (std::memcmp(found, region.fingerprint.data(), region.fingerprint.size()) != 0) {
    return Error(ErrorReason::kFingerprintMismatch, RegionField(index, "fingerprint"),
                 "the region does not hold the expected bytes: wrong offset or stale memory");
  }
  FaultPoint("memory.after_fingerprint");
  return absl::OkStatus();
}

Mapper& Registration::MapperOf(size_t region) const {
  const DeviceIndex device = DeviceOf(region);
  return device == kHostMemory ? state_->mapper : state_->devices->at(device).mapper();
}

RegisteredIds Registration::MintIds() {
  // Only this thread adds ids, so what is free now stays free until the commit.
  MutexLock lock(&state_->mutex);
  std::set<uint64_t> taken;
  const auto mint = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
    uint64_t id = RandomId();
    while (state_->live.contains(id) || state_->retiring.contains(id) ||
           state_->caches.contains(id) || !taken.insert(id).second) {
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
    if (!state_->live.contains(id)) return false;
  }
  return true;
}

absl::Status Registration::Commit() {
  ids_ = MintIds();
  std::vector<std::shared_ptr<const RegisteredCache>> caches;
  for (size_t i = 0; i < spec_.caches.size(); ++i) {
    RegisteredCache cache{ids_.cache_ids[i], spec_.caches[i].tag,
                          WithRealIds(spec_.caches[i].spec, ids_.region_ids),
                          DeviceOf(spec_.caches[i].spec)};
    caches.push_back(std::make_shared<const RegisteredCache>(std::move(cache)));
  }
  // Told before anybody can retire them, so that no total ever goes below zero.
  if (state_->observer != nullptr) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      state_->observer->OnMapped(DeviceOf(i), ranges_[i].bytes);
    }
  }
  absl::Status committed;
  {
    MutexLock lock(&state_->mutex);
    if (state_->closing) {
      committed = SessionEnded();
    } else if (!StillLive()) {
      committed = MemoryUnknown("caches");
    } else {
      for (size_t i = 0; i < mappings_.size(); ++i) AddRegion(i);
      for (const auto& cache : caches) state_->caches[cache->cache_id] = cache;
    }
  }
  if (committed.ok() || state_->observer == nullptr) return committed;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    state_->observer->OnRetiring();
    state_->observer->OnUnmapped(DeviceOf(i), ranges_[i].bytes);
  }
  return committed;
}

void Registration::AddRegion(size_t index) {
  const RegionRequest& request = spec_.regions[index];
  const uint64_t id = ids_.region_ids[index];
  state_->mapped_bytes += request.size;
  state_->live[id] = std::make_shared<Region>(
      std::move(mappings_[index]), ranges_[index].place, request.writable, request.tag,
      MapperOf(index), [state = state_, id, memory = DeviceOf(index), bytes = request.size] {
        state->OnRegionClosed(id, memory, bytes);
      });
}

}  // namespace kvtriage
