#include "client/cpp/memory_book.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "client/cpp/local_error.h"
#include "client/cpp/memory_ids.h"

namespace kvtriage::client {
namespace {

template <typename Visit>
void ForEachRegion(CacheSpec& spec, const Visit& visit) {
  for (LayerSpec& layer : spec.layers) {
    for (ViewSpec* view : {&layer.k, &layer.v}) {
      visit(view->region);
      if (view->row_scales) visit(view->row_scales->region);
    }
    for (ViewSpec& companion : layer.companions) visit(companion.region);
  }
}

bool Uses(CacheSpec spec, const std::map<uint64_t, LentRegion>& regions) {
  bool uses = false;
  ForEachRegion(spec, [&](Region region) { uses = uses || regions.contains(region.handle); });
  return uses;
}

}  // namespace

MemoryBook::MemoryBook() : next_handle_(kFirstHandle) {}

absl::StatusOr<Lot> MemoryBook::Prepare(const std::vector<RegionSpec>& regions,
                                        const std::vector<CacheSpec>& caches) {
  Lot lot;
  MutexLock lock(&mutex_);
  for (const RegionSpec& spec : regions) {
    if (spec.cuda.has_value()) {
      lot.regions.push_back({Region{next_handle_++}, spec, nullptr});
      continue;
    }
    auto fd = std::make_shared<OwnedFd>(fcntl(spec.fd, F_DUPFD_CLOEXEC, 0));
    if (!fd->valid()) {
      return LocalError(
          absl::StatusCode::kInvalidArgument, "bad_argument",
          "regions[" + std::to_string(lot.regions.size()) + "].fd is not an open descriptor");
    }
    LentRegion& lent =
        lot.regions.emplace_back(LentRegion{Region{next_handle_++}, spec, std::move(fd)});
    lent.spec.fd = lent.fd->get();
  }
  for (const CacheSpec& spec : caches) lot.caches.push_back({Cache{next_handle_++}, spec});
  return lot;
}

void MemoryBook::Enter(Lot lot) {
  MutexLock lock(&mutex_);
  for (LentCache& cache : lot.caches) {
    ForEachRegion(cache.spec, [&](Region& region) {
      const uint64_t index = region.handle - 1;
      if (region.handle < kFirstHandle && index < lot.regions.size())
        region = lot.regions[index].region;
    });
    caches_.emplace(cache.cache.handle, std::move(cache));
  }
  for (LentRegion& region : lot.regions) regions_.emplace(region.region.handle, std::move(region));
}

Lot MemoryBook::FindLocked(const std::vector<Region>& regions,
                           const std::vector<Cache>& caches) const {
  std::map<uint64_t, LentRegion> found;
  for (const Region region : regions) {
    if (const auto it = regions_.find(region.handle); it != regions_.end()) found.insert(*it);
  }
  Lot lot;
  for (const auto& [handle, cache] : caches_) {
    const bool named = std::find(caches.begin(), caches.end(), cache.cache) != caches.end();
    if (named || Uses(cache.spec, found)) lot.caches.push_back(cache);
  }
  for (auto& [handle, region] : found) lot.regions.push_back(std::move(region));
  return lot;
}

Lot MemoryBook::Find(const std::vector<Region>& regions, const std::vector<Cache>& caches) const {
  MutexLock lock(&mutex_);
  return FindLocked(regions, caches);
}

Lot MemoryBook::Remove(const std::vector<Region>& regions, const std::vector<Cache>& caches) {
  MutexLock lock(&mutex_);
  Lot lot = FindLocked(regions, caches);
  for (const LentRegion& region : lot.regions) regions_.erase(region.region.handle);
  for (const LentCache& cache : lot.caches) caches_.erase(cache.cache.handle);
  return lot;
}

Lot MemoryBook::All() const {
  MutexLock lock(&mutex_);
  Lot lot;
  for (const auto& [handle, region] : regions_) lot.regions.push_back(region);
  for (const auto& [handle, cache] : caches_) lot.caches.push_back(cache);
  return lot;
}

std::optional<CacheSpec> MemoryBook::SpecOf(Cache cache) const {
  MutexLock lock(&mutex_);
  const auto it = caches_.find(cache.handle);
  if (it == caches_.end()) return std::nullopt;
  return it->second.spec;
}

bool MemoryBook::HoldsOwners() const {
  MutexLock lock(&mutex_);
  return std::any_of(regions_.begin(), regions_.end(),
                     [](const auto& entry) { return entry.second.spec.owner != nullptr; });
}

void MemoryBook::AbandonOwners() {
  // Kept in reach, and never destroyed.
  static auto* const abandoned = new std::vector<std::shared_ptr<const void>>();
  static Mutex* const abandoned_mutex = new Mutex();
  MutexLock lock(&mutex_);
  MutexLock keeping(abandoned_mutex);
  for (auto& [handle, region] : regions_) {
    if (region.spec.owner != nullptr) abandoned->push_back(std::move(region.spec.owner));
  }
}

}  // namespace kvtriage::client
