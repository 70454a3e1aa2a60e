// A device's kernels for score inputs that lie in host memory: what the engine keeps itself between
// calls (running sums, draft rows) is copied to the device, one request at a time.
#ifndef KVTRIAGE_SERVICE_ENGINE_STAGED_INPUTS_H_
#define KVTRIAGE_SERVICE_ENGINE_STAGED_INPUTS_H_

#include <cstddef>
#include <memory>
#include <span>

#include "kvtriage/kernels/backend.h"
#include "service/memory/device_memory.h"

namespace kvtriage {

// `room` is memory of the device for the inputs of one request; the others outlive the result.
// Score: every tensor of every request's AttentionInput is the host's, K and V are the
// device's; DEVICE_MEMORY when a request's tensors do not fit `room`. All other calls, and Score's
// errors, are those of `kernels`.
std::unique_ptr<Backend> StageInputs(Backend& kernels, DeviceCopier& copier,
                                     std::shared_ptr<const std::span<std::byte>> room);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_STAGED_INPUTS_H_
