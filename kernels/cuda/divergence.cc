#include "kernels/cuda/divergence.h"

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/divergence_launch.h"

namespace kvtriage {
namespace {

DivergenceForm FormOf(const DivergenceRequest& request) {
  if (request.apart) return DivergenceForm::kApart;
  return request.metric == DivergenceMetric::kRelative ? DivergenceForm::kRelative
                                                       : DivergenceForm::kL2;
}

}  // namespace

absl::Status CudaDivergeRows(const DivergenceRequest& request, Workspace& workspace,
                             DivergenceResult& result) {
  result.divergence.assign(request.rows.size(), 0.0f);
  result.old.assign(request.apart ? request.rows.size() : 0, 0.0f);
  if (request.rows.empty()) return absl::OkStatus();
  DeviceInputs inputs(workspace);
  DivergenceArgs args{};
  KVTRIAGE_ASSIGN_OR_RETURN(args.fresh, inputs.View(request.fresh.view, request.fresh.sequence));
  KVTRIAGE_ASSIGN_OR_RETURN(args.cached, inputs.View(request.cached.view, request.cached.sequence));
  args.fresh_first = request.fresh.first_row;
  args.cached_first = request.cached.first_row;
  KVTRIAGE_ASSIGN_OR_RETURN(args.rows, inputs.List(request.rows));
  args.count = static_cast<uint32_t>(request.rows.size());
  KVTRIAGE_ASSIGN_OR_RETURN(args.divergence, workspace.Take<float>(request.rows.size()));
  if (request.apart) {
    KVTRIAGE_ASSIGN_OR_RETURN(args.old, workspace.Take<float>(request.rows.size()));
  }
  const bool wide = WideRows(request.fresh.view) && WideRows(request.cached.view);
  KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchDivergence(args, FormOf(request), wide, workspace.stream()),
                                "divergence.launch");
  if (request.apart) {
    KVTRIAGE_RETURN_IF_ERROR(workspace.Download<float>(args.old, result.old));
  }
  return workspace.Download<float>(args.divergence, result.divergence);
}

}  // namespace kvtriage
