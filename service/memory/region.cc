#include "service/memory/region.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "kernels/core/error.h"
#include "service/memory/session_memory.h"
#include "service/observe/fault_point.h"

namespace kvtriage {

absl::StatusOr<std::unique_ptr<HostMapping>> HostMapping::Map(int fd, uint64_t offset,
                                                              uint64_t bytes, bool writable) {
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* data = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return Error(ErrorReason::kMapFailed, "", "cannot map the memory file")
        .Got(static_cast<uint64_t>(errno));
  }
  // The worker's rows are its own: they stay out of our core files.
  ::madvise(data, bytes, MADV_DONTDUMP);
  return std::unique_ptr<HostMapping>(new HostMapping(static_cast<std::byte*>(data), bytes));
}

HostMapping::~HostMapping() { ::munmap(data_, bytes_); }

Region::Region(std::unique_ptr<Mapping> mapping, RegionPlace place, bool writable, uint32_t tag,
               Mapper& mapper, std::function<void()> closed)
    : data_(mapping->data()),
      bytes_(mapping->bytes()),
      place_(place),
      writable_(writable),
      tag_(tag),
      mapper_(mapper),
      mapping_(std::move(mapping)),
      closed_(std::move(closed)) {}

uint32_t Region::pins() const {
  const uint32_t uses = uses_.load(std::memory_order_acquire);
  return retired_.load(std::memory_order_acquire) || uses == 0 ? uses : uses - 1;
}

void Region::AddPin(const std::shared_ptr<Region>& region) {
  region->uses_.fetch_add(1, std::memory_order_relaxed);
}

void Region::DropPin(const std::shared_ptr<Region>& region) { DropUse(region); }

void Region::Retire(const std::shared_ptr<Region>& region) {
  region->retired_.store(true, std::memory_order_release);
  region->mapping_->NoteRetiring();  // it is there: the use that goes next keeps it
  DropUse(region);
}

void Region::DropUse(const std::shared_ptr<Region>& region) {
  if (region->uses_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  region->mapper_.Post([region] { Close(region); });
}

void Region::Close(const std::shared_ptr<Region>& region) {
  FaultPoint("memory.before_close");
  // Freeing a device's memory takes no time by its size, and belongs on this thread.
  if (region->memory() != kHostMemory || region->bytes_ <= Mapper::kQuickBytes) {
    region->mapping_.reset();
    return region->OnUnmapped();
  }
  region->mapper_.PostAside([region] {
    region->mapping_.reset();
    region->mapper_.Post([region] { region->OnUnmapped(); });
  });
}

void Region::OnUnmapped() {
  FaultPoint("memory.after_close");
  std::exchange(closed_, nullptr)();
}

RegionPin::RegionPin(std::shared_ptr<Region> region) : region_(std::move(region)) {
  Region::AddPin(region_);
}

RegionPin::RegionPin(RegionPin&& other) noexcept : region_(std::move(other.region_)) {}

RegionPin& RegionPin::operator=(RegionPin&& other) noexcept {
  if (this == &other) return *this;
  if (region_ != nullptr) Region::DropPin(region_);
  region_ = std::move(other.region_);
  return *this;
}

RegionPin::~RegionPin() {
  if (region_ != nullptr) Region::DropPin(region_);
}

std::byte* RegionPin::data() const { return region_->data(); }
DeviceIndex RegionPin::memory() const { return region_->memory(); }
uint64_t RegionPin::size() const { return region_->bytes(); }
bool RegionPin::writable() const { return region_->writable(); }

}  // namespace kvtriage
