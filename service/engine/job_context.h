// What a job has to work with while it runs on the lane.
#ifndef KVTRIAGE_SERVICE_ENGINE_JOB_CONTEXT_H_
#define KVTRIAGE_SERVICE_ENGINE_JOB_CONTEXT_H_

#include "kvtriage/kernels/backend.h"
#include "service/engine/engine_observer.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

struct JobContext {
  Backend& backend;
  Backend& host_inputs;            // the same for score inputs in host memory (lane_device.h)
  DeviceCopier* copier = nullptr;  // null: the lane's memory is the host's
  DeviceIndex device = kHostMemory;
  EngineObserver* observer = nullptr;  // may be null
  const EngineLimits& limits;
  // DEADLINE_UNMEETABLE or KEY_DEAD once nobody waits for the job any more. Asked until the first
  // row moves.
  StopCheck stop;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_JOB_CONTEXT_H_
