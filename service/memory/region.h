// One range of host memory that a worker has lent: our mapping of it, and the count of who uses it.
#ifndef KVTRIAGE_SERVICE_MEMORY_REGION_H_
#define KVTRIAGE_SERVICE_MEMORY_REGION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "service/memory/mapper.h"
#include "service/memory/memfd.h"
#include "service/policy/register_spec.h"

namespace kvtriage {

// A shared mapping of part of a file. Unmaps itself. Made and destroyed on the mapper's threads.
class HostMapping {
 public:
  // MAP_FAILED. The descriptor is not needed afterwards. `offset` lies on a page.
  static absl::StatusOr<HostMapping> Map(int fd, uint64_t offset, uint64_t bytes, bool writable);
  HostMapping(HostMapping&& other) noexcept;
  HostMapping& operator=(HostMapping&&) = delete;
  ~HostMapping();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  HostMapping(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  uint64_t bytes_;
};

// Where a region lies: which file, and how far into it. Two regions of one file may overlap.
struct RegionPlace {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t offset = 0;

  bool SameFile(const RegionPlace& other) const {
    return device == other.device && inode == other.inode;
  }
};

// Lives as long as anybody holds a pointer; the memory behind it is gone earlier: after Retire,
// when the last pin has dropped. Thread-safe.
class Region {
 public:
  // `closed` runs once on the mapper's thread, after the memory was unmapped.
  Region(HostMapping mapping, RegionPlace place, bool writable, uint32_t tag, Mapper& mapper,
         std::function<void()> closed);

  std::byte* data() const { return data_; }
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
  std::unique_ptr<HostMapping> mapping_;
  std::function<void()> closed_;
  std::atomic<uint32_t> uses_{1};  // the pins, and 1 until retired
  std::atomic<bool> retired_{false};
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_REGION_H_
