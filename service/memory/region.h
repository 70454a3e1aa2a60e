// One range of memory that a worker has lent: our mapping of it, and the count of who uses it.
#ifndef KVTRIAGE_SERVICE_MEMORY_REGION_H_
#define KVTRIAGE_SERVICE_MEMORY_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "service/memory/mapper.h"
#include "service/memory/mapping.h"
#include "service/memory/memfd.h"
#include "service/policy/register_spec.h"

namespace kvtriage {

// A shared mapping of part of a file. Unmaps itself.
class HostMapping final : public Mapping {
 public:
  // MAP_FAILED. The descriptor is not needed afterwards. `offset` lies on a page.
  static absl::StatusOr<std::unique_ptr<HostMapping>> Map(int fd, uint64_t offset, uint64_t bytes,
                                                          bool writable);
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  ~HostMapping() override;

  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  HostMapping(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* const data_;
  const uint64_t bytes_;
};

// Where a region lies: in which file or allocation, and how far into it. Two regions of one may
// overlap.
struct RegionPlace {
  dev_t device = 0;     // of the memory file; 0 for CUDA
  uint64_t object = 0;  // inode of the memory file; CUDA: where the allocation is open
  uint64_t offset = 0;
  DeviceIndex memory = kHostMemory;

  bool SameObject(const RegionPlace& other) const {
    return memory == other.memory && device == other.device && object == other.object;
  }
};

// Lives as long as anybody holds a pointer; the memory behind it is gone earlier: after Retire,
// when the last pin has dropped. Thread-safe.
class Region {
 public:
  // `closed` runs once on the mapper's thread, after the memory was unmapped. `mapper` is the one
  // that the mapping belongs to.
  Region(std::unique_ptr<Mapping> mapping, RegionPlace place, bool writable, uint32_t tag,
         Mapper& mapper, std::function<void()> closed);

  // Host memory may be read and written here; a device's only by its kernels and copies.
  std::byte* data() const { return data_; }
  DeviceIndex memory() const { return place_.memory; }
  uint64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }
  uint32_t tag() const { return tag_; }
  const RegionPlace& place() const { return place_; }
  uint32_t pins() const;

  // Only for whoever found the region in its registry and holds the registry's lock, or has a pin.
  static void AddPin(const std::shared_ptr<Region>& region);
  static void DropPin(const std::shared_ptr<Region>& region);
  // Once, after it has left the registry: the memory goes when no pin is left.
  static void Retire(const std::shared_ptr<Region>& region);

 private:
  static void DropUse(const std::shared_ptr<Region>& region);
  static void Close(const std::shared_ptr<Region>& region);  // mapper's thread
  void OnUnmapped();                                         // mapper's thread

  // Copies: the mapping itself is gone once closed, and only the mapper's threads touch it.
  std::byte* const data_;
  const uint64_t bytes_;
  const RegionPlace place_;
  const bool writable_;
  const uint32_t tag_;
  Mapper& mapper_;
  std::unique_ptr<Mapping> mapping_;
  std::function<void()> closed_;
  std::atomic<uint32_t> uses_{1};  // the pins, and 1 until retired
  std::atomic<bool> retired_{false};
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_REGION_H_
