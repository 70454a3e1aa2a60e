#include "service/memory/cuda_device.h"

#include <array>
#include <cstring>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/cuda_status.h"
#include "service/memory/cuda_copier.h"
#include "service/memory/cuda_driver.h"
#include "service/memory/cuda_handles.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

absl::Status NoDevice(cudaError_t error, const char* text) {
  cudaGetLastError();
  Error none(ErrorReason::kNoDevice, "", text);
  if (error != cudaSuccess) none.Got(static_cast<uint64_t>(error));
  return none;
}

// As the driver's tools print it: 8-4-4-4-12 hexadecimal digits.
std::string UuidText(const char (&bytes)[16]) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppend(&text, absl::Hex(static_cast<unsigned char>(bytes[i]), absl::kZeroPad2));
  }
  return text;
}

absl::StatusOr<DeviceFacts> FactsOf(int ordinal, int driver) {
  DeviceFacts facts;
  facts.ordinal = ordinal;
  facts.driver_version = static_cast<uint32_t>(driver);
  cudaDeviceProp properties;
  KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, ordinal), "device.properties");
  facts.uuid = UuidText(properties.uuid.bytes);
  facts.name = properties.name;
  int major = 0, minor = 0;
  KVTRIAGE_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
      "device.capability");
  KVTRIAGE_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
      "device.capability");
  facts.compute_capability = static_cast<uint32_t>(10 * major + minor);
  return facts;
}

class CudaDevice final : public DeviceMemory {
 public:
  CudaDevice(DeviceFacts facts, std::function<void()> on_lost)
      : facts_(std::move(facts)), on_lost_(std::move(on_lost)) {}
  ~CudaDevice() override {
    // What was made on the mapper's thread goes there.
    mapper_.Post([this] {
      handles_.reset();
      copier_.reset();
    });
  }

  absl::Status Start() {
    std::promise<absl::Status> started;
    mapper_.Post([&] { started.set_value(StartOnThread()); });
    return started.get_future().get();
  }

  const DeviceFacts& facts() const override { return facts_; }
  Mapper& mapper() override { return mapper_; }

  absl::StatusOr<std::unique_ptr<Mapping>> Open(const RegionRequest& request,
                                                const void* session) override {
    absl::StatusOr<std::unique_ptr<Mapping>> mapping =
        handles_->Open(*request.cuda, request.size, session);
    if (!mapping.ok()) return WithFieldPrefix(mapping.status(), "cuda_ipc.");
    KVTRIAGE_RETURN_IF_ERROR(CheckFingerprint(request, (*mapping)->data()));
    FaultPoint("memory.after_fingerprint");
    return mapping;
  }

  absl::StatusOr<std::unique_ptr<DeviceCopier>> MakeCopier() override {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaSetDevice(facts_.ordinal), "device.set");
    return CudaCopier::Make();
  }

 private:
  // The context begins here: its memory is taken before anybody hears of the device.
  absl::Status StartOnThread() {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaSetDevice(facts_.ordinal), "device.set");
    size_t free = 0, total = 0;
    KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free, &total), "device.memory");
    facts_.memory_bytes = total;
    KVTRIAGE_ASSIGN_OR_RETURN(copier_, CudaCopier::Make());
    KVTRIAGE_ASSIGN_OR_RETURN(const CudaDriver driver, CudaDriver::Find());
    handles_.emplace(driver, [this](cudaError_t error) { Judge(error); });
    return absl::OkStatus();
  }

  absl::Status CheckFingerprint(const RegionRequest& request, const std::byte* data) {
    if (request.fingerprint.empty()) return absl::OkStatus();
    std::array<std::byte, 64> found{};
    const std::span<std::byte> bytes(found.data(), request.fingerprint.size());
    if (absl::Status read = copier_->ToHost(bytes, data + request.fingerprint_offset); !read.ok()) {
      const auto info = GetErrorInfo(read);
      if (info && info->reason == ErrorReason::kDeviceLost) TellLost();
      return read;
    }
    if (std::memcmp(found.data(), request.fingerprint.data(), bytes.size()) == 0) {
      return absl::OkStatus();
    }
    return Error(ErrorReason::kFingerprintMismatch, "fingerprint",
                 "the region does not hold the expected bytes: wrong offset or stale memory");
  }

  void Judge(cudaError_t error) {
    if (copier_->StaysIn(error)) TellLost();
  }
  void TellLost() {
    if (on_lost_ != nullptr) std::exchange(on_lost_, nullptr)();
  }

  // Fixed once started.
  DeviceFacts facts_;
  // The mapper's thread.
  std::function<void()> on_lost_;
  std::unique_ptr<CudaCopier> copier_;
  std::optional<CudaHandles> handles_;
  Mapper mapper_;  // last: its tasks use the others
};

}  // namespace

absl::StatusOr<std::vector<DeviceFacts>> ListCudaDevices() {
  int driver = 0;
  if (const cudaError_t error = cudaDriverGetVersion(&driver); error != cudaSuccess) {
    return NoDevice(error, "the CUDA driver does not answer");
  }
  if (driver == 0) return NoDevice(cudaSuccess, "no CUDA driver is installed");
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return NoDevice(error, "the CUDA driver is older than this build");
  }
  if (error != cudaSuccess || count == 0) return NoDevice(error, "CUDA shows no device");
  std::vector<DeviceFacts> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    KVTRIAGE_ASSIGN_OR_RETURN(devices.emplace_back(), FactsOf(ordinal, driver));
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> OpenCudaDevice(const DeviceFacts& facts,
                                                             std::function<void()> on_lost) {
  auto device = std::make_unique<CudaDevice>(facts, std::move(on_lost));
  KVTRIAGE_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace kvtriage
