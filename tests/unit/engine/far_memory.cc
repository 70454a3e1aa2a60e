#include "tests/unit/engine/far_memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "service/engine/staged_inputs.h"

namespace kvtriage {
namespace {

// Bit 62: no address of any process.
constexpr uintptr_t kFar = uintptr_t{1} << 62;
constexpr uint64_t kRoomBytes = 1 << 20;

std::byte* ToFar(const std::byte* near) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(near) | kFar);
}

std::byte* ToNear(const std::byte* far) {
  const auto address = reinterpret_cast<uintptr_t>(far);
  if ((address & kFar) == 0) {
    std::fputs("a host address was given to a device\n", stderr);
    std::abort();
  }
  return reinterpret_cast<std::byte*>(address & ~kFar);
}

void Bring(KvView& view) {
  if (view.base != nullptr) view.base = ToNear(view.base);
  if (view.scales.base != nullptr) view.scales.base = ToNear(view.scales.base);
}

void Bring(LayerRows& layer) {
  Bring(layer.k);
  Bring(layer.v);
}

void Bring(AttentionInput& input) {
  for (TensorView* view : {&input.q, &input.o, &input.lse, &input.a, &input.z, &input.sums,
                           &input.sink_logits, &input.alibi_slopes, &input.output_projection,
                           &input.query_mean, &input.query_covariance}) {
    if (*view) view->base = ToNear(view->base);
  }
}

class FarMapping final : public Mapping {
 public:
  FarMapping(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  std::byte* const data_;
  const uint64_t bytes_;
};

class FarCopier final : public DeviceCopier {
 public:
  absl::Status ToHost(std::span<std::byte> to, const std::byte* from) override {
    std::memcpy(to.data(), ToNear(from), to.size());
    return absl::OkStatus();
  }
  absl::Status ToDevice(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(ToNear(to), from.data(), from.size());
    return absl::OkStatus();
  }
};

class FarBackend final : public Backend {
 public:
  explicit FarBackend(std::unique_ptr<Backend> near) : near_(std::move(near)) {}

  std::string name() const override { return "far"; }
  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    std::vector<ScoreRequest> near(requests.begin(), requests.end());
    for (ScoreRequest& request : near) {
      Bring(request.layer);
      Bring(request.input);
    }
    return near_->Score(near, stop, results);
  }
  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    return near_->Select(requests, results);
  }
  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override {
    std::vector<QualityRequest> near(requests.begin(), requests.end());
    for (QualityRequest& request : near) {
      Bring(request.layer);
      Bring(request.input);
    }
    return near_->Measure(near, stop, results);
  }
  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override {
    DivergenceRequest near = request;
    Bring(near.fresh.view);
    Bring(near.cached.view);
    return near_->Diverge(near, result);
  }
  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override {
    std::vector<MoveRequest> near(requests.begin(), requests.end());
    for (MoveRequest& request : near) {
      Bring(request.from);
      Bring(request.to);
    }
    return near_->Move(near, result);
  }
  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override {
    std::vector<RotateRequest> near(requests.begin(), requests.end());
    for (RotateRequest& request : near) {
      for (KvView& keys : request.keys) Bring(keys);
    }
    return near_->Rotate(near, result);
  }
  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override {
    std::vector<RowCopy> near(copies.begin(), copies.end());
    for (RowCopy& copy : near) {
      Bring(copy.from);
      Bring(copy.to);
    }
    return near_->CopyRows(near, result);
  }

 private:
  const std::unique_ptr<Backend> near_;
};

std::shared_ptr<const std::span<std::byte>> MakeRoom() {
  struct Room {
    std::vector<std::byte> memory = std::vector<std::byte>(kRoomBytes);
    std::span<std::byte> far{ToFar(memory.data()), kRoomBytes};
  };
  auto room = std::make_shared<Room>();
  return {room, &room->far};
}

}  // namespace

const FarDevice* LendOn::current = nullptr;

FarDevice::FarDevice(uint32_t number) { facts_.uuid = "GPU-far-" + std::to_string(number); }

absl::StatusOr<std::unique_ptr<Mapping>> FarDevice::Open(const RegionRequest& request,
                                                         const void* /*session*/) {
  std::byte* memory = nullptr;
  std::memcpy(&memory, request.cuda->handle.data(), sizeof memory);
  return std::make_unique<FarMapping>(ToFar(memory) + request.cuda->base_offset, request.size);
}

absl::StatusOr<std::unique_ptr<DeviceCopier>> FarDevice::MakeCopier() {
  return std::make_unique<FarCopier>();
}

RegionRequest FarDevice::Lend(std::byte* memory, uint64_t bytes, bool writable) const {
  RegionRequest region;
  region.size = bytes;
  region.writable = writable;
  CudaAllocation& cuda = region.cuda.emplace();
  std::memcpy(cuda.handle.data(), &memory, sizeof memory);
  cuda.device_uuid = facts_.uuid;
  cuda.allocation_bytes = bytes;
  cuda.exporter_pid = 1;  // not ours
  cuda.generation = 1;
  return region;
}

DeviceLane FarDevice::Lane(std::function<std::unique_ptr<Backend>()> kernels) const {
  return {[kernels = std::move(kernels)]() -> absl::StatusOr<LaneDevice> {
            LaneDevice lane;
            lane.copier = std::make_unique<FarCopier>();
            lane.backend = std::make_unique<FarBackend>(kernels());
            lane.host_inputs = StageInputs(*lane.backend, *lane.copier, MakeRoom());
            return lane;
          },
          nullptr, nullptr};
}

DeviceList FarDevices(uint32_t count) {
  std::vector<std::unique_ptr<DeviceMemory>> devices;
  for (uint32_t i = 0; i < count; ++i) devices.push_back(std::make_unique<FarDevice>(i));
  return DeviceList(std::move(devices));
}

}  // namespace kvtriage
