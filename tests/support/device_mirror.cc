#include "tests/support/device_mirror.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "kernels/core/status_macros.h"
#include "kernels/cuda/cuda_status.h"

namespace kvtriage {
namespace {

#if defined(KVTRIAGE_CUDA_TOOLKIT)
constexpr bool kRealDevice = true;
#else
constexpr bool kRealDevice = false;
#endif

constexpr uint64_t kAlignment = 256;  // of what cudaMalloc gives

// One past the last byte of `extent` nested axes, from the first.
uint64_t SpanOf(std::initializer_list<std::pair<uint64_t, uint64_t>> axes, uint64_t innermost) {
  uint64_t bytes = innermost;
  for (const auto& [extent, stride] : axes) bytes += (extent - 1) * stride;
  return bytes;
}

uint64_t BytesOf(const ViewLayout& layout) {
  const uint64_t row = layout.contiguous_rows() ? layout.row_bytes()
                                                : (layout.row_elems - 1) * layout.elem_stride +
                                                      ElementBytes(layout.dtype);
  return SpanOf({{layout.num_blocks, layout.block_stride},
                 {layout.heads, layout.head_stride},
                 {layout.block_slots, layout.slot_stride}},
                row);
}

uint64_t Remainder(const std::byte* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kAlignment;
}

}  // namespace

DeviceMirror::DeviceMirror(cudaStream_t stream) : stream_(stream) {}

bool DeviceMirror::Wanted() {
  return kRealDevice || std::getenv("KVTRIAGE_TEST_MIRROR") != nullptr;
}

DeviceMirror::~DeviceMirror() {
  for (const Range& range : ranges_) {
    if (range.allocation != nullptr) cudaFree(range.allocation);
  }
}

void DeviceMirror::Place(const std::byte** pointer, uint64_t bytes, bool written) {
  if (*pointer == nullptr) return;
  auto* start = const_cast<std::byte*>(*pointer);
  ranges_.push_back({start, start + bytes, written});
  pointers_.push_back(pointer);
}

void DeviceMirror::Place(KvView& view, bool written) {
  Place(const_cast<const std::byte**>(&view.base), BytesOf(view.layout), written);
  Place(&view.scales.base,
        SpanOf({{view.layout.num_blocks, view.scales.block_stride},
                {view.layout.heads, view.scales.head_stride},
                {view.layout.block_slots, view.scales.slot_stride}},
               sizeof(float)),
        written);
}

void DeviceMirror::PlaceRead(KvView& view) { Place(view, false); }
void DeviceMirror::PlaceWritten(KvView& view) { Place(view, true); }

void DeviceMirror::PlaceRead(TensorView& tensor) {
  if (!tensor || tensor.rows == 0) return;
  Place(&tensor.base,
        SpanOf({{tensor.rows, tensor.row_stride},
                {tensor.heads, tensor.head_stride},
                {tensor.elems, tensor.elem_stride}},
               ElementBytes(tensor.dtype)),
        false);
}

void DeviceMirror::PlaceRead(LayerRows& layer) {
  PlaceRead(layer.k);
  PlaceRead(layer.v);
}

void DeviceMirror::PlaceRead(AttentionInput& input) {
  for (TensorView* tensor :
       {&input.alibi_slopes, &input.sink_logits, &input.q, &input.o, &input.lse, &input.a, &input.z,
        &input.sums, &input.output_projection, &input.query_mean, &input.query_covariance}) {
    PlaceRead(*tensor);
  }
}

void DeviceMirror::MergeRanges() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.start < b.start; });
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (merged.empty() || range.start >= merged.back().end) {
      merged.push_back(range);
      continue;
    }
    merged.back().end = std::max(merged.back().end, range.end);
    merged.back().written = merged.back().written || range.written;
  }
  ranges_ = std::move(merged);
}

absl::Status DeviceMirror::ToDevice() {
  MergeRanges();
  for (Range& range : ranges_) {
    const auto bytes = static_cast<uint64_t>(range.end - range.start);
    KVTRIAGE_RETURN_IF_CUDA_ERROR(cudaMalloc(&range.allocation, bytes + kAlignment),
                                  "mirror.memory");
    range.copy = static_cast<std::byte*>(range.allocation) + Remainder(range.start);
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(range.copy, range.start, bytes, cudaMemcpyHostToDevice, stream_),
        "mirror.upload");
  }
  for (const std::byte** pointer : pointers_) {
    const Range& holder = *std::prev(
        std::upper_bound(ranges_.begin(), ranges_.end(), *pointer,
                         [](const std::byte* at, const Range& range) { return at < range.start; }));
    *pointer = holder.copy + (*pointer - holder.start);
  }
  return Finish();
}

absl::Status DeviceMirror::ToHost() {
  for (const Range& range : ranges_) {
    if (!range.written) continue;
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(range.start, range.copy, static_cast<uint64_t>(range.end - range.start),
                        cudaMemcpyDeviceToHost, stream_),
        "mirror.download");
  }
  return Finish();
}

absl::Status DeviceMirror::Finish() {
  cudaError_t state = cudaErrorNotReady;
  while (state == cudaErrorNotReady) state = cudaStreamQuery(stream_);
  return CudaStatus(state, "mirror.finish");
}

absl::Status DeviceMirror::Run(const std::function<absl::Status()>& call) {
  KVTRIAGE_RETURN_IF_ERROR(ToDevice());
  const absl::Status status = call();
  KVTRIAGE_RETURN_IF_ERROR(ToHost());
  return status;
}

}  // namespace kvtriage
