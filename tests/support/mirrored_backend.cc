#include "tests/support/mirrored_backend.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/device_mirror.h"

namespace kvtriage {
namespace {

// Requests of our own, whose views a mirror may change.
template <class Request>
std::vector<Request> CopyOf(std::span<const Request> requests) {
  return {requests.begin(), requests.end()};
}

class MirroredBackend : public Backend {
 public:
  explicit MirroredBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  ~MirroredBackend() override { cudaStreamDestroy(stream_); }

  std::string name() const override { return backend_->name(); }

  absl::Status Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                     std::vector<ScoreResult>& results) override {
    std::vector<ScoreRequest> placed = CopyOf(requests);
    DeviceMirror mirror(stream_);
    for (ScoreRequest& request : placed) {
      mirror.PlaceRead(request.layer);
      mirror.PlaceRead(request.input);
    }
    return mirror.Run([&] { return backend_->Score(placed, stop, results); });
  }

  absl::Status Select(std::span<const SelectRequest> requests,
                      std::vector<SelectResult>& results) override {
    return backend_->Select(requests, results);  // scores are the host's
  }

  absl::Status Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                       std::vector<QualityResult>& results) override {
    std::vector<QualityRequest> placed = CopyOf(requests);
    DeviceMirror mirror(stream_);
    for (QualityRequest& request : placed) {
      mirror.PlaceRead(request.layer);
      mirror.PlaceRead(request.input);
    }
    return mirror.Run([&] { return backend_->Measure(placed, stop, results); });
  }

  absl::Status Diverge(const DivergenceRequest& request, DivergenceResult& result) override {
    DivergenceRequest placed = request;
    DeviceMirror mirror(stream_);
    mirror.PlaceRead(placed.fresh.view);
    mirror.PlaceRead(placed.cached.view);
    return mirror.Run([&] { return backend_->Diverge(placed, result); });
  }

  absl::Status Move(std::span<const MoveRequest> requests, MoveResult& result) override {
    std::vector<MoveRequest> placed = CopyOf(requests);
    DeviceMirror mirror(stream_);
    for (MoveRequest& request : placed) {
      mirror.PlaceRead(request.from);
      mirror.PlaceWritten(request.to);
    }
    return mirror.Run([&] { return backend_->Move(placed, result); });
  }

  absl::Status Rotate(std::span<const RotateRequest> requests, RotateResult& result) override {
    std::vector<RotateRequest> placed = CopyOf(requests);
    DeviceMirror mirror(stream_);
    for (RotateRequest& request : placed) {
      for (KvView& keys : request.keys) mirror.PlaceWritten(keys);
    }
    return mirror.Run([&] { return backend_->Rotate(placed, result); });
  }

  absl::Status CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) override {
    std::vector<RowCopy> placed = CopyOf(copies);
    DeviceMirror mirror(stream_);
    for (RowCopy& copy : placed) {
      mirror.PlaceRead(copy.from);
      mirror.PlaceWritten(copy.to);
    }
    return mirror.Run([&] { return backend_->CopyRows(placed, result); });
  }

 private:
  const std::unique_ptr<Backend> backend_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Backend> MirrorHostMemory(std::unique_ptr<Backend> backend) {
  if (!DeviceMirror::Wanted()) return backend;
  return std::make_unique<MirroredBackend>(std::move(backend));
}

}  // namespace kvtriage
