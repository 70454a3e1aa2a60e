#include "service/memory/session_memory.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/core/error.h"
#include "service/memory/memory_unknown.h"
#include "service/memory/registration.h"
#include "service/memory/session_memory_state.h"
#include "service/observe/fault_point.h"

namespace kvtriage {

absl::Status SessionEnded() {
  return Error(ErrorReason::kSessionEnded, "", "the session has ended");
}

std::vector<uint64_t> RegionsOf(const CacheSpec& cache) {
  std::vector<uint64_t> ids;
  const auto add = [&ids](const ViewSpec& view, const std::string&) {
    if (std::find(ids.begin(), ids.end(), view.region_id) == ids.end())
      ids.push_back(view.region_id);
    return absl::OkStatus();
  };
  for (const LayerSpec& layer : cache.layers) layer.ForEachView(add).IgnoreError();
  return ids;
}

SessionMemory::SessionMemory(Mapper& mapper, const MemoryQuota& quota, MappingObserver* observer,
                             const DeviceList* devices)
    : state_(std::make_shared<State>(mapper, quota, observer, devices)) {}

SessionMemory::~SessionMemory() {
  {
    // An ended session may be let go after the mapper: then there is nothing left to do.
    MutexLock lock(&state_->mutex);
    if (state_->closing) return;
  }
  RetireAll([] {});
}

absl::StatusOr<uint64_t> SessionMemory::AddTicket(UniqueFd fd) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(fd));
  absl::StatusOr<std::vector<uint64_t>> tickets = AddTickets(std::move(fds));
  if (!tickets.ok()) return tickets.status();
  return tickets->front();
}

absl::StatusOr<std::vector<uint64_t>> SessionMemory::AddTickets(std::vector<UniqueFd> fds) {
  absl::StatusOr<std::vector<uint64_t>> tickets = state_->AddTickets(fds);
  state_->mapper.Close(std::move(fds));  // those that were not taken
  return tickets;
}

absl::StatusOr<std::vector<uint64_t>> SessionMemory::State::AddTickets(std::vector<UniqueFd>& fds) {
  DropExpiredTickets();
  MutexLock lock(&mutex);
  if (closing) return SessionEnded();
  const size_t waiting = tickets.size() + fds.size();
  if (waiting > quota.max_tickets) {
    return Error(ErrorReason::kQuotaBytes, "", "too many descriptors wait for a registration")
        .Got(waiting)
        .Limit(quota.max_tickets);
  }
  const auto expiry =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(quota.ticket_life_ms);
  std::vector<uint64_t> added;
  for (UniqueFd& fd : fds) added.push_back(tickets.Add(std::move(fd), expiry));
  fds.clear();
  return added;
}

void SessionMemory::State::DropExpiredTickets() {
  std::vector<UniqueFd> expired;
  {
    MutexLock lock(&mutex);
    expired = tickets.TakeExpired(std::chrono::steady_clock::now());
  }
  mapper.Close(std::move(expired));
}

void SessionMemory::DropExpiredTickets() { state_->DropExpiredTickets(); }

void SessionMemory::DropTickets() {
  std::vector<UniqueFd> dropped;
  {
    MutexLock lock(&state_->mutex);
    dropped = state_->tickets.TakeAll();
  }
  state_->mapper.Close(std::move(dropped));
}

void SessionMemory::Register(RegisterSpec spec, State::RegisterDone done) {
  uint64_t number = 0;
  {
    MutexLock lock(&state_->mutex);
    number = state_->next_registration++;
    state_->registering.insert(number);
  }
  auto over = [state = state_, number, done = std::move(done)](absl::StatusOr<RegisteredIds> ids) {
    FaultPoint("memory.before_reply");
    done(std::move(ids));
    state->OnRegistrationOver(number);
  };
  auto registration = std::make_shared<Registration>(state_, std::move(spec), std::move(over));
  state_->mapper.Post([registration] { registration->Start(); });
}

void SessionMemory::Unregister(UnregisterSpec spec, uint32_t deadline_ms,
                               State::UnregisterDone done) {
  state_->Retire(spec, deadline_ms, std::move(done));
}

void SessionMemory::RetireAll(std::function<void()> done) {
  {
    MutexLock lock(&state_->mutex);
    state_->closing = true;
  }
  DropTickets();
  UnregisterSpec everything;
  everything.everything = true;
  state_->Retire(everything, std::nullopt,
                 [done = std::move(done)](const absl::StatusOr<UnregisterCounts>&) { done(); });
}

absl::StatusOr<RegionPin> SessionMemory::Pin(uint64_t region_id) {
  MutexLock lock(&state_->mutex);
  const auto found = state_->live.find(region_id);
  if (found == state_->live.end()) return MemoryUnknown("region_id");
  return RegionPin(found->second);
}

absl::StatusOr<std::shared_ptr<const RegisteredCache>> SessionMemory::FindCache(uint64_t cache_id) {
  MutexLock lock(&state_->mutex);
  const auto found = state_->caches.find(cache_id);
  if (found == state_->caches.end()) return MemoryUnknown("cache_id");
  return found->second;
}

DeviceIndex SessionMemory::DeviceOfRegion(uint64_t region_id) {
  MutexLock lock(&state_->mutex);
  const auto found = state_->live.find(region_id);
  return found == state_->live.end() ? kHostMemory : found->second->memory();
}

DeviceIndex SessionMemory::DeviceOfCache(uint64_t cache_id) {
  MutexLock lock(&state_->mutex);
  const auto found = state_->caches.find(cache_id);
  return found == state_->caches.end() ? kHostMemory : found->second->memory;
}

std::vector<RegionListing> SessionMemory::ListRegions() {
  std::vector<RegionListing> out;
  MutexLock lock(&state_->mutex);
  const auto list = [&out](const State::Regions& regions, bool retiring) {
    for (const auto& [id, region] : regions) {
      out.push_back({id, region->tag(), region->bytes(), region->writable(), region->pins(),
                     retiring, region->memory()});
    }
  };
  list(state_->live, false);
  list(state_->retiring, true);
  return out;
}

std::vector<CacheListing> SessionMemory::ListCaches() {
  std::vector<CacheListing> out;
  MutexLock lock(&state_->mutex);
  for (const auto& [id, cache] : state_->caches) {
    out.push_back(
        {id, cache->tag, static_cast<uint32_t>(cache->spec.layers.size()), RegionsOf(cache->spec)});
  }
  return out;
}

std::shared_ptr<SessionMemory::State::Wait> SessionMemory::State::MoveToRetiring(
    const UnregisterSpec& spec, std::vector<std::shared_ptr<Region>>& retired) {
  auto wait = std::make_shared<Wait>();
  // Caches first: one that is named together with its region is not "already gone".
  for (const uint64_t id : spec.cache_ids) {
    if (caches.erase(id) == 0) ++wait->counts.already_gone;
  }
  std::vector<uint64_t> ids = spec.region_ids;
  if (spec.everything) {
    ids.clear();
    for (const auto& [id, region] : live) ids.push_back(id);
    for (const auto& [id, region] : retiring) ids.push_back(id);
    caches.clear();
  }
  for (const uint64_t id : ids) {
    if (auto node = live.extract(id); !node.empty()) {
      retired.push_back(node.mapped());
      retiring.insert(std::move(node));
    }
    if (retiring.contains(id)) {
      wait->open.insert(id);
    } else {
      ++wait->counts.already_gone;
    }
  }
  wait->counts.closed = static_cast<uint32_t>(wait->open.size());
  if (closing) wait->open.insert(registering.begin(), registering.end());
  // A cache without its memory is no cache.
  std::erase_if(caches, [this](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const std::vector<uint64_t> used = RegionsOf(entry.second->spec);
    return std::any_of(used.begin(), used.end(),
                       [this](uint64_t id)
                           ABSL_NO_THREAD_SAFETY_ANALYSIS { return !live.contains(id); });
  });
  return wait;
}

void SessionMemory::State::Retire(const UnregisterSpec& spec, std::optional<uint32_t> deadline_ms,
                                  UnregisterDone done) {
  std::vector<std::shared_ptr<Region>> retired;
  std::shared_ptr<Wait> wait;
  bool all_closed = false;
  {
    MutexLock lock(&mutex);
    wait = MoveToRetiring(spec, retired);
    wait->done = std::move(done);
    all_closed = wait->open.empty();
    if (!all_closed) waits.push_back(wait);
  }
  for (const std::shared_ptr<Region>& region : retired) {
    if (observer != nullptr) observer->OnRetiring();
    Region::Retire(region);
  }
  if (all_closed) {
    mapper.Post([wait] { wait->done(wait->counts); });
  } else if (deadline_ms) {
    mapper.PostAfter(*deadline_ms, [self = shared_from_this(), wait] { self->OnDeadline(wait); });
  }
}

void SessionMemory::State::OnDeadline(const std::shared_ptr<Wait>& wait) {
  UnregisterDone done;
  size_t open = 0;
  {
    MutexLock lock(&mutex);
    done = std::exchange(wait->done, nullptr);
    open = wait->open.size();
    std::erase(waits, wait);
  }
  if (done == nullptr) return;  // all closed in time
  done(Error(ErrorReason::kRegionRetiring, "region_ids",
             "mappings are still in use; repeat the call before the memory is freed")
           .Got(open));
}

SessionMemory::State::Answers SessionMemory::State::AnsweredBy(uint64_t id) {
  Answers answered;
  std::erase_if(waits, [&](const std::shared_ptr<Wait>& wait) {
    wait->open.erase(id);
    if (!wait->open.empty()) return false;
    answered.emplace_back(std::exchange(wait->done, nullptr), wait->counts);
    return true;
  });
  return answered;
}

void SessionMemory::State::OnRegionClosed(uint64_t region_id, DeviceIndex memory, uint64_t bytes) {
  Answers answered;
  Regions::node_type gone;  // drops the region after the lock
  {
    MutexLock lock(&mutex);
    gone = retiring.extract(region_id);
    mapped_bytes -= bytes;
    answered = AnsweredBy(region_id);
  }
  if (observer != nullptr) observer->OnUnmapped(memory, bytes);
  for (const auto& [done, counts] : answered) done(counts);
}

void SessionMemory::State::OnRegistrationOver(uint64_t number) {
  Answers answered;
  {
    MutexLock lock(&mutex);
    registering.erase(number);
    answered = AnsweredBy(number);
  }
  for (const auto& [done, counts] : answered) done(counts);
}

}  // namespace kvtriage
