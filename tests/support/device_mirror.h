// Lets requests on host memory run on a real device: what their views name is copied there before
// the call and back after it.
#ifndef KVTRIAGE_TESTS_SUPPORT_DEVICE_MIRROR_H_
#define KVTRIAGE_TESTS_SUPPORT_DEVICE_MIRROR_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_api.h"
#include "kvtriage/kernels/quality.h"
#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Views that overlap on the host (rows moved in place, K and V of one buffer) name one copy, and
// addresses keep their remainders, so that kernels take the same paths. The caller owns the
// requests whose views it places; they name the device's memory from Run on.
//
// In the emulator requests may name host memory as it is, where sanitizers watch its edges: a
// mirror is not wanted then, unless KVTRIAGE_TEST_MIRROR is set.
class DeviceMirror {
 public:
  static bool Wanted();

  explicit DeviceMirror(cudaStream_t stream);
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;

  void PlaceRead(KvView& view);
  void PlaceWritten(KvView& view);  // read and written
  void PlaceRead(TensorView& tensor);
  void PlaceRead(LayerRows& layer);
  void PlaceRead(AttentionInput& input);

  // Copies, calls, copies back what was placed for writing, also when the call failed.
  absl::Status Run(const std::function<absl::Status()>& call);

 private:
  struct Range {  // of host memory
    std::byte* start;
    std::byte* end;
    bool written;
    std::byte* copy = nullptr;  // of `start`
    void* allocation = nullptr;
  };

  // `pointer` names [*pointer, *pointer + bytes).
  void Place(const std::byte** pointer, uint64_t bytes, bool written);
  void Place(KvView& view, bool written);
  void MergeRanges();
  absl::Status ToDevice();
  absl::Status ToHost();
  absl::Status Finish();

  const cudaStream_t stream_;
  std::vector<Range> ranges_;
  std::vector<const std::byte**> pointers_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_DEVICE_MIRROR_H_
