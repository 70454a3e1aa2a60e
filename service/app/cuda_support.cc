#include "service/app/cuda_support.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_status.h"
#include "service/engine/staged_inputs.h"
#include "service/memory/cuda_device.h"

namespace kvtriage {
namespace {

// Of the arena, for what the service keeps in host memory and kernels read (StageInputs).
constexpr uint64_t kRoomShare = 8;

CudaSupport None(absl::Status why) { return {DeviceList(std::move(why)), {}, {}}; }

absl::Status NotServed() {
  return Error(ErrorReason::kNoDevice, "", "the configuration serves no CUDA device");
}

// The devices that cuda.devices names, in their order.
absl::StatusOr<std::vector<DeviceFacts>> Chosen(const std::vector<DeviceFacts>& visible,
                                                std::string_view names) {
  if (names == "all") return visible;
  std::vector<DeviceFacts> chosen;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view uuid = names.substr(begin, end - begin);
    const auto found =
        std::find_if(visible.begin(), visible.end(),
                     [uuid](const DeviceFacts& facts) { return facts.uuid == uuid; });
    if (found == visible.end()) {
      return absl::Status(Error(ErrorReason::kGpuNotVisible, "cuda.devices",
                                "a device that the configuration names is not visible")
                              .Index(chosen.size()));
    }
    chosen.push_back(*found);
    begin = end + 1;
  }
  return chosen;
}

// Memory of the calling thread's device, for as long as anybody holds it; freed on that thread.
absl::StatusOr<std::shared_ptr<const std::span<std::byte>>> MakeRoom(uint64_t bytes) {
  void* memory = nullptr;
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaMalloc(&memory, bytes), "lane.room");
  auto* span = new std::span<std::byte>(static_cast<std::byte*>(memory), bytes);
  return std::shared_ptr<const std::span<std::byte>>(span, [](const std::span<std::byte>* room) {
    cudaFree(room->data());
    delete room;
  });
}

// On the lane's thread. Everything that the lane will ever take of the device is taken here.
absl::StatusOr<LaneDevice> MakeLane(DeviceMemory& memory, uint64_t arena_bytes) {
  const uint64_t room_bytes = arena_bytes / kRoomShare;
  LaneDevice lane;
  KVTRIAGE_ASSIGN_OR_RETURN(lane.copier, memory.MakeCopier());
  KVTRIAGE_ASSIGN_OR_RETURN(lane.backend,
                            MakeCudaBackend(memory.facts().ordinal, arena_bytes - room_bytes));
  KVTRIAGE_ASSIGN_OR_RETURN(auto room, MakeRoom(room_bytes));
  lane.host_inputs = StageInputs(*lane.backend, *lane.copier, std::move(room));
  return lane;
}

}  // namespace

absl::StatusOr<CudaSupport> OpenCuda(const Config& config, const std::function<void()>& on_lost) {
  if (config.backend == "cpu" || config.cuda_devices == "none") {
    if (config.backend == "cuda") return NotServed();
    return None(NotServed());
  }
  const absl::StatusOr<std::vector<DeviceFacts>> visible = ListCudaDevices();
  if (!visible.ok()) {
    const bool wanted = config.backend == "cuda" || config.cuda_devices != "all";
    if (wanted) return visible.status();
    return None(visible.status());
  }
  KVTRIAGE_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> chosen,
                            Chosen(*visible, config.cuda_devices));
  CudaSupport support{DeviceList(absl::Status()), {}, {}};
  std::vector<std::unique_ptr<DeviceMemory>> devices;
  for (const DeviceFacts& facts : chosen) {
    KVTRIAGE_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> device, OpenCudaDevice(facts, on_lost));
    support.lanes.push_back({[memory = device.get(), bytes = config.cuda_arena_bytes] {
                               return MakeLane(*memory, bytes);
                             },
                             on_lost});
    support.names.push_back(absl::StrCat("cuda:", facts.ordinal));
    devices.push_back(std::move(device));
  }
  support.devices = DeviceList(std::move(devices));
  return support;
}

}  // namespace kvtriage
