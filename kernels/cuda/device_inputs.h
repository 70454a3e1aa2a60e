// Host-side inputs of a call (block tables, lists of rows), each copied to the device once however
// often it is named, and the device's descriptions of views.
#ifndef KVTRIAGE_KERNELS_CUDA_DEVICE_INPUTS_H_
#define KVTRIAGE_KERNELS_CUDA_DEVICE_INPUTS_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda/workspace.h"
#include "kvtriage/kernels/views.h"

namespace kvtriage {

// Widest of 16, 8, 4, 2 and 1 bytes that divides all of the numbers (addresses, strides, lengths).
uint32_t AccessWidth(std::span<const uint64_t> numbers);

DeviceTensor OnDevice(const TensorView& tensor);

class DeviceInputs {
 public:
  explicit DeviceInputs(Workspace& workspace) : workspace_(workspace) {}

  // Null for an empty list.
  absl::StatusOr<const int32_t*> List(std::span<const int32_t> list);
  // The rows of one head; `elem_stride` as given, so that kernels may walk in words.
  absl::StatusOr<DeviceRows> Rows(const KvView& view, const SequenceRows& rows, uint32_t head,
                                  uint64_t elem_stride);
  // All heads, with types and scales.
  absl::StatusOr<DeviceView> View(const KvView& view, const SequenceRows& rows);

 private:
  Workspace& workspace_;
  std::map<std::pair<const int32_t*, size_t>, const int32_t*> copies_;
};

// Whether every piece of every row (row_pieces.cuh) is one aligned access.
bool WideRows(const KvView& view);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CUDA_DEVICE_INPUTS_H_
