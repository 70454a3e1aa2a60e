#include "service/memory/cuda_handles.h"

#include <cstring>
#include <utility>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "kernels/cuda/cuda_status.h"

namespace kvtriage {
namespace {

constexpr uint32_t kRetryMs = 50;  // pins last as long as a job

}  // namespace

absl::Status OpenError(cudaError_t error) {
  const auto refusal = [error](ErrorReason reason, const char* field, const char* text) {
    return absl::Status(Error(reason, field, text).Got(static_cast<uint64_t>(error)));
  };
  if (IsSticky(error) || error == cudaErrorMemoryAllocation) return CudaStatus(error, "handle");
  switch (static_cast<int>(error)) {
    case cudaErrorDeviceUninitialized:
      return refusal(ErrorReason::kPidCollision, "exporter_pid",
                     "the driver takes the handle for one of the service's own: worker and service "
                     "have the same PID number");
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
      return refusal(ErrorReason::kPeerUnsupported, "device_uuid",
                     "the memory cannot be reached from this device");
    case cudaErrorAlreadyMapped:
      return CudaStatus(error, "handle");  // we open each handle once
    default:
      return refusal(ErrorReason::kMapFailed, "handle", "the driver does not open the handle");
  }
}

// One handle that is open; closes itself.
class CudaHandles::OpenHandle {
 public:
  OpenHandle(CudaHandles& table, const CudaAllocation& allocation, const void* session,
             std::byte* base)
      : table_(table),
        handle_(allocation.handle),
        session_(session),
        generation_(allocation.generation),
        base_(base) {}
  OpenHandle(const OpenHandle&) = delete;
  OpenHandle& operator=(const OpenHandle&) = delete;
  ~OpenHandle() {
    table_.open_.erase(handle_);
    if (const cudaError_t error = cudaIpcCloseMemHandle(base_); error != cudaSuccess) {
      cudaGetLastError();
      table_.on_error_(error);
    }
  }

  std::byte* base() const { return base_; }

  // Asks the driver what was opened.
  cudaError_t LookUp() {
    AddressRange range;
    const cudaError_t error = table_.driver_.RangeOf(base_, range);
    if (range.base == base_) bytes_ = range.bytes;
    return error;
  }
  // Whether a part lies inside.
  absl::Status CheckPart(const CudaAllocation& allocation, uint64_t bytes) const {
    if (RangeFits(allocation.base_offset, bytes, bytes_)) return absl::OkStatus();
    return Error(ErrorReason::kMapFailed, "allocation_bytes",
                 "the handle opens an allocation of another size")
        .Got(allocation.allocation_bytes)
        .Limit(bytes_);
  }

  // Whether the allocation may be used once more.
  absl::Status CheckSame(const CudaAllocation& allocation, const void* session) const {
    if (session != session_) {
      Error refusal(ErrorReason::kHandleInUse, "handle", "another session has lent this memory");
      if (parts_ == 0) refusal.RetryAfterMs(kRetryMs);  // and takes it back
      return refusal;
    }
    if (allocation.generation == generation_) return absl::OkStatus();
    return Error(ErrorReason::kStaleGeneration, "generation",
                 "an older allocation is open under the same handle: unregister it first")
        .Got(allocation.generation)
        .Limit(generation_);
  }

  void AddPart() { ++parts_; }
  void DropPart() { --parts_; }

 private:
  CudaHandles& table_;
  const std::array<std::byte, 64> handle_;
  const void* const session_;
  const uint64_t generation_;
  std::byte* const base_;
  uint64_t bytes_ = 0;              // 0 when it is not the base of an allocation
  std::atomic<uint32_t> parts_{0};  // mappings that do not retire yet
};

// A lent part of an open allocation.
class CudaHandles::Part final : public Mapping {
 public:
  Part(std::shared_ptr<OpenHandle> handle, uint64_t offset, uint64_t bytes)
      : handle_(std::move(handle)), data_(handle_->base() + offset), bytes_(bytes) {
    handle_->AddPart();
  }
  ~Part() override { NoteRetiring(); }

  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }
  void NoteRetiring() override {
    if (!retiring_.exchange(true)) handle_->DropPart();
  }

 private:
  const std::shared_ptr<OpenHandle> handle_;
  std::byte* const data_;
  const uint64_t bytes_;
  std::atomic<bool> retiring_{false};
};

std::shared_ptr<CudaHandles::OpenHandle> CudaHandles::Find(const CudaAllocation& allocation) {
  const auto found = open_.find(allocation.handle);
  return found == open_.end() ? nullptr : found->second.lock();
}

absl::Status CudaHandles::Refused(cudaError_t error) {
  cudaGetLastError();  // or the next call on this thread would find it
  on_error_(error);
  return OpenError(error);
}

absl::StatusOr<std::shared_ptr<CudaHandles::OpenHandle>> CudaHandles::OpenAnew(
    const CudaAllocation& allocation, const void* session) {
  cudaIpcMemHandle_t handle;
  static_assert(sizeof handle == sizeof allocation.handle);
  std::memcpy(&handle, allocation.handle.data(), sizeof handle);
  void* base = nullptr;
  cudaError_t error = cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) return Refused(error);
  auto opened =
      std::make_shared<OpenHandle>(*this, allocation, session, static_cast<std::byte*>(base));
  error = opened->LookUp();
  if (error != cudaSuccess) return Refused(error);
  open_[allocation.handle] = opened;
  return opened;
}

absl::StatusOr<std::unique_ptr<Mapping>> CudaHandles::Open(const CudaAllocation& allocation,
                                                           uint64_t bytes, const void* session) {
  std::shared_ptr<OpenHandle> handle = Find(allocation);
  if (handle == nullptr) {
    KVTRIAGE_ASSIGN_OR_RETURN(handle, OpenAnew(allocation, session));
  } else {
    KVTRIAGE_RETURN_IF_ERROR(handle->CheckSame(allocation, session));
  }
  KVTRIAGE_RETURN_IF_ERROR(handle->CheckPart(allocation, bytes));
  return std::make_unique<Part>(std::move(handle), allocation.base_offset, bytes);
}

}  // namespace kvtriage
