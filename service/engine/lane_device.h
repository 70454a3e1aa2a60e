// What a lane works with.
#ifndef KVTRIAGE_SERVICE_ENGINE_LANE_DEVICE_H_
#define KVTRIAGE_SERVICE_ENGINE_LANE_DEVICE_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kvtriage/kernels/backend.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

// Made, used and destroyed on the lane's own thread; members go in the opposite order.
struct LaneDevice {
  // How host code gets at the device's memory. Null: it is the host's.
  std::unique_ptr<DeviceCopier> copier;
  std::unique_ptr<Backend> backend;
  // The same kernels on score inputs that lie in host memory: running sums and draft rows are ours.
  // Null: `backend` reads host memory.
  std::unique_ptr<Backend> host_inputs;

  Backend& ForHostInputs() const { return host_inputs != nullptr ? *host_inputs : *backend; }
};

class EngineObserver;

struct DeviceLane {
  std::function<absl::StatusOr<LaneDevice>()> make;
  // A call has ended with DEVICE_LOST: at most once, on the lane's thread, after the call has its
  // answer. May be empty.
  std::function<void()> on_lost;
  // Told of what this lane does; null: nobody.
  EngineObserver* observer = nullptr;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LANE_DEVICE_H_
