#include "kernels/core/error.h"
#include "service/app/cuda_support.h"

namespace kvtriage {

absl::StatusOr<CudaSupport> OpenCuda(const Config& config,
                                     const std::function<void()>& /*on_lost*/) {
  const absl::Status why = Error(ErrorReason::kNoDevice, "", "built without CUDA")
                               .Code(absl::StatusCode::kUnimplemented);
  const bool named = config.cuda_devices != "all" && config.cuda_devices != "none";
  if (config.backend == "cuda" || (named && config.backend != "cpu")) return why;
  return CudaSupport{DeviceList(why), {}, {}};
}

}  // namespace kvtriage
