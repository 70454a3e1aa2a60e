// One RegisterRegions on its way over the mappers' threads: cheap checks of everything first, then
// CUDA allocations, each on its device's mapper, then host mappings, then one commit under the
// lock. When a step fails, all that was opened is closed where it was opened, and then the call is
// answered. Only session_memory.cc includes this.
#ifndef KVTRIAGE_SERVICE_MEMORY_REGISTRATION_H_
#define KVTRIAGE_SERVICE_MEMORY_REGISTRATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "service/memory/cache_placement.h"
#include "service/memory/device_memory.h"
#include "service/memory/session_memory_state.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {

// "regions[3].access"
std::string RegionField(size_t index, std::string_view field);

// Runs on one thread at a time.
class Registration : public std::enable_shared_from_this<Registration> {
 public:
  Registration(std::shared_ptr<SessionMemory::State> state, RegisterSpec spec,
               SessionMemory::State::RegisterDone done)
      : state_(std::move(state)),
        spec_(std::move(spec)),
        done_(std::move(done)),
        ranges_(spec_.regions.size()),
        mappings_(spec_.regions.size()) {}

  void Start();  // the host mapper's thread

 private:
  // ---- registration_steps.cc: from mapper to mapper ----
  void OpenFrom(DeviceIndex device);     // all regions of this device and those behind it
  void OpenRegions(DeviceIndex device);  // on its mapper's thread
  void Finish();                         // the host mapper's thread
  void Fail(absl::Status why);
  void CloseFrom(DeviceIndex device);
  // The next device from this one on of which there are regions; behind the last: size() + 1.
  DeviceIndex NextDevice(DeviceIndex device) const;
  absl::Status OpenRegion(size_t index);

  // ---- registration.cc: the host mapper's thread ----
  absl::Status Check();
  absl::Status TakeTickets();
  absl::Status CheckRegion(size_t index);
  absl::Status CheckHost(size_t index);
  absl::Status CheckCuda(size_t index);
  // Of what the session has by now.
  absl::Status CheckQuotas();
  absl::Status CheckCaches();
  const LentRange* FindRangeOf(uint64_t id) const;
  absl::Status MapRegions();
  absl::Status MapRegion(size_t index);
  absl::Status Commit();
  void AddRegion(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);

  RegisteredIds MintIds();
  DeviceIndex DeviceOf(const CacheSpec& cache) const;  // after CheckCaches
  CacheSpec WithRealIds(CacheSpec cache, const std::vector<uint64_t>& region_ids) const;
  bool StillLive() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  Mapper& MapperOf(size_t region) const;
  DeviceIndex DeviceOf(size_t region) const { return ranges_[region].place.memory; }

  const std::shared_ptr<SessionMemory::State> state_;
  const RegisterSpec spec_;
  const SessionMemory::State::RegisterDone done_;
  std::vector<UniqueFd> fds_;            // invalid for CUDA
  std::vector<LentRange> ranges_;        // of the request's regions
  std::map<uint64_t, LentRange> older_;  // of earlier regions that its caches name
  std::vector<std::unique_ptr<Mapping>> mappings_;
  RegisteredIds ids_;
  absl::Status failed_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_REGISTRATION_H_
