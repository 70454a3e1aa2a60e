// How a registration goes from mapper to mapper.
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/memory/registration.h"
#include "service/observe/fault_point.h"

namespace kvtriage {

void Registration::Start() {
  if (absl::Status checked = Check(); !checked.ok()) return Fail(std::move(checked));
  OpenFrom(kHostMemory + 1);
}

DeviceIndex Registration::NextDevice(DeviceIndex device) const {
  if (state_->devices == nullptr) return device;
  const DeviceIndex behind = state_->devices->size() + 1;
  for (; device < behind; ++device) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      if (DeviceOf(i) == device) return device;
    }
  }
  return behind;
}

void Registration::OpenFrom(DeviceIndex device) {
  const DeviceList* const devices = state_->devices;
  const DeviceIndex next = NextDevice(device);
  if (devices != nullptr && next <= devices->size()) {
    devices->at(next).mapper().Post([self = shared_from_this(), next] { self->OpenRegions(next); });
  } else if (device == kHostMemory + 1) {
    Finish();  // no region of a device: this is still the host mapper
  } else {
    state_->mapper.Post([self = shared_from_this()] { self->Finish(); });
  }
}

void Registration::OpenRegions(DeviceIndex device) {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (DeviceOf(i) != device) continue;
    if (absl::Status opened = OpenRegion(i); !opened.ok()) return Fail(std::move(opened));
  }
  OpenFrom(device + 1);
}

absl::Status Registration::OpenRegion(size_t index) {
  DeviceMemory& memory = state_->devices->at(DeviceOf(index));
  absl::StatusOr<std::unique_ptr<Mapping>> opened = memory.Open(spec_.regions[index], state_.get());
  if (!opened.ok()) return WithFieldPrefix(opened.status(), RegionField(index, ""));
  // An allocation is open at one place only, whatever its handles look like.
  const std::byte* base = (*opened)->data() - ranges_[index].place.offset;
  ranges_[index].place.object = reinterpret_cast<uintptr_t>(base);
  mappings_[index] = *std::move(opened);
  FaultPoint("memory.after_map");
  return absl::OkStatus();
}

void Registration::Finish() {
  absl::Status done = CheckQuotas();
  if (done.ok()) done = CheckCaches();
  if (done.ok()) done = MapRegions();
  if (done.ok()) done = Commit();
  if (!done.ok()) return Fail(std::move(done));
  done_(std::move(ids_));
}

void Registration::Fail(absl::Status why) {
  failed_ = std::move(why);
  fds_.clear();
  // Host mappings are made last, by Finish: there are some only on the host mapper's thread.
  for (size_t i = 0; i < mappings_.size(); ++i) {
    if (DeviceOf(i) == kHostMemory) mappings_[i].reset();
  }
  CloseFrom(kHostMemory + 1);
}

void Registration::CloseFrom(DeviceIndex device) {
  const DeviceList* const devices = state_->devices;
  const DeviceIndex next = NextDevice(device);
  if (devices == nullptr || next > devices->size()) return done_(std::move(failed_));
  devices->at(next).mapper().Post([self = shared_from_this(), next] {
    for (size_t i = 0; i < self->mappings_.size(); ++i) {
      if (self->DeviceOf(i) == next) self->mappings_[i].reset();
    }
    self->CloseFrom(next + 1);
  });
}

}  // namespace kvtriage
