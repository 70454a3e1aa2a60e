// A device's backend for requests on host memory: each call copies what its views name there and
// back.
#ifndef KVTRIAGE_TESTS_SUPPORT_MIRRORED_BACKEND_H_
#define KVTRIAGE_TESTS_SUPPORT_MIRRORED_BACKEND_H_

#include <memory>

#include "kvtriage/kernels/backend.h"

namespace kvtriage {

// `backend` itself where device_mirror.h says that nothing is copied. For the thread that made it.
std::unique_ptr<Backend> MirrorHostMemory(std::unique_ptr<Backend> backend);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_MIRRORED_BACKEND_H_
