#include "service/memory/device_memory.h"

#include <algorithm>
#include <cctype>
#include <future>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

// Behind "GPU-" or "MIG-": which of the two it is called is up to the tool that printed it.
std::string_view WithoutKind(std::string_view uuid) {
  return uuid.substr(std::min<size_t>(4, uuid.size()));
}

bool SameLetters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// "MIG-GPU-<uuid>/1/0" names an instance by its GPU.
std::string_view ParentOf(std::string_view uuid) {
  if (!uuid.starts_with("MIG-GPU-")) return {};
  return uuid.substr(4, uuid.find('/') - 4);
}

void Settle(Mapper& mapper) {
  std::promise<void> through;
  mapper.Post([&through] { through.set_value(); });
  through.get_future().wait();
}

}  // namespace

absl::StatusOr<DeviceIndex> DeviceList::Find(std::string_view uuid) const {
  if (devices_.empty()) return why_none_;
  const auto named = [this](std::string_view name) -> DeviceIndex {
    for (DeviceIndex i = 1; i <= size(); ++i) {
      if (SameLetters(WithoutKind(at(i).facts().uuid), WithoutKind(name))) return i;
    }
    return kHostMemory;
  };
  if (const DeviceIndex found = named(uuid); found != kHostMemory) return found;
  const std::string_view parent = ParentOf(uuid);
  if (!parent.empty() && named(parent) != kHostMemory) {
    return absl::Status(Error(ErrorReason::kMigUnsupported, "device_uuid",
                              "of this MIG instance only the GPU is visible here"));
  }
  return absl::Status(Error(ErrorReason::kGpuNotVisible, "device_uuid",
                            "no device of this UUID is visible to the service"));
}

void SettleMappers(Mapper& host, const DeviceList& devices) {
  // A registration visits every mapper at most twice, and the host's once more.
  for (DeviceIndex round = 0; round < 2 * devices.size() + 2; ++round) {
    Settle(host);
    for (DeviceIndex i = 1; i <= devices.size(); ++i) Settle(devices.at(i).mapper());
  }
}

}  // namespace kvtriage
