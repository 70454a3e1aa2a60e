// Device memory of one lane for plans, inputs and results of a call: allocated once, handed out
// piece by piece, taken back as a whole.
#ifndef KVTRIAGE_KERNELS_CUDA_WORKSPACE_H_
#define KVTRIAGE_KERNELS_CUDA_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/status_macros.h"
#include "kernels/cuda/cuda_api.h"

namespace kvtriage {

// For one thread, which has set the device. Owns a stream and the memory; pointers are valid until
// Reset.
class Workspace {
 public:
  // Of every piece; a piece costs up to so many bytes more than it holds.
  static constexpr uint64_t kAlignment = 256;

  // DEVICE_MEMORY when the device has not that much left.
  static absl::StatusOr<std::unique_ptr<Workspace>> Make(uint64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  cudaStream_t stream() const { return stream_; }
  uint64_t bytes_left() const { return bytes_ - used_; }
  int multiprocessors() const { return multiprocessors_; }

  // Everything handed out is taken back. Only when the stream is idle.
  void Reset() { used_ = 0; }
  // Rewind takes back what was handed out since a Mark. Only when the stream is idle.
  uint64_t Mark() const { return used_; }
  void Rewind(uint64_t mark) { used_ = mark; }

  // `count` values, not initialised. DEVICE_MEMORY when the workspace is too small: naming both.
  template <class T>
  absl::StatusOr<T*> Take(uint64_t count) {
    KVTRIAGE_ASSIGN_OR_RETURN(std::byte * bytes, TakeBytes(count, sizeof(T)));
    return reinterpret_cast<T*>(bytes);
  }
  // The same, zeroed in the stream.
  template <class T>
  absl::StatusOr<T*> TakeZeroed(uint64_t count) {
    KVTRIAGE_ASSIGN_OR_RETURN(T * values, Take<T>(count));
    KVTRIAGE_RETURN_IF_ERROR(Zero(values, count * sizeof(T)));
    return values;
  }
  // A copy of host values. They may go when this returns.
  template <class T>
  absl::StatusOr<std::remove_const_t<T>*> Upload(std::span<T> values) {
    KVTRIAGE_ASSIGN_OR_RETURN(std::remove_const_t<T> * copy,
                              Take<std::remove_const_t<T>>(values.size()));
    KVTRIAGE_RETURN_IF_ERROR(ToDevice(copy, values.data(), values.size_bytes()));
    return copy;
  }
  // Copies host values to memory that was taken. They may go when this returns.
  template <class T>
  absl::Status Fill(T* to, std::span<const T> values) {
    return ToDevice(to, values.data(), values.size_bytes());
  }
  // Waits for what is in the stream, then copies device values to the host.
  template <class T>
  absl::Status Download(const T* values, std::span<T> to) {
    return ToHost(to.data(), values, to.size_bytes());
  }

  // Until the stream is idle; the first error of what ran in it.
  absl::Status Finish();

 private:
  explicit Workspace(uint64_t bytes) : bytes_(bytes) {}
  absl::StatusOr<std::byte*> TakeBytes(uint64_t count, uint64_t size);
  absl::Status Zero(void* to, uint64_t bytes);
  absl::Status ToDevice(void* to, const void* from, uint64_t bytes);
  absl::Status ToHost(void* to, const void* from, uint64_t bytes);

  const uint64_t bytes_;
  uint64_t used_ = 0;
  std::byte* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  int multiprocessors_ = 1;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_WORKSPACE_H_
