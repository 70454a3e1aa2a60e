#include "kernels/cuda/fuse.h"

#include <map>

#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/move_plan.h"

namespace kvtriage {

absl::Status CudaCopyRows(std::span<const RowCopy> copies, Workspace& workspace,
                          RowCopyResult& result) {
  result = {};
  DeviceInputs inputs(workspace);
  std::map<WordShape, MovePlan> plans;
  for (const RowCopy& copy : copies) {
    if (copy.count == 0) continue;
    const WordShape shape = ShapeOf(copy.from, copy.to);
    MovePlan& plan = plans.try_emplace(shape, shape).first->second;
    for (uint32_t head = 0; head < copy.from.layout.heads; ++head) {
      KVTRIAGE_RETURN_IF_ERROR(plan.Add({.from = copy.from,
                                         .from_rows = copy.from_rows,
                                         .kept = copy.from_row,
                                         .to = copy.to,
                                         .to_rows = copy.to_rows,
                                         .put = copy.to_row,
                                         .head = head,
                                         .rows = copy.count,
                                         .in_place = false},
                                        inputs));
    }
    result.bytes_written +=
        uint64_t{copy.count} * copy.from.layout.heads * copy.from.layout.row_bytes();
  }
  for (const auto& [shape, plan] : plans) KVTRIAGE_RETURN_IF_ERROR(plan.Launch(workspace));
  return workspace.Finish();
}

}  // namespace kvtriage
