#include "kernels/cuda/compact.h"

#include <algorithm>
#include <map>

#include "kernels/core/checked_math.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/move_plan.h"

namespace kvtriage {
namespace {

// The same slots of the same memory: else source and destination share no row.
bool InPlace(const MoveRequest& request) {
  if (request.from.base != request.to.base) return false;
  const SequenceRows& to = request.to_rows;
  if (request.from_rows.first_slot != to.first_slot) return false;
  const uint64_t blocks = CeilDiv(uint64_t{to.first_slot} + to.rows, request.to.layout.block_slots);
  return std::equal(to.table, to.table + blocks, request.from_rows.table);
}

// Rows at the start of the list that stay where they are: kept ascends, so once one row has moved,
// all later ones do.
uint32_t RowsThatStay(std::span<const int32_t> kept) {
  uint32_t j = 0;
  while (j < kept.size() && kept[j] == static_cast<int32_t>(j)) ++j;
  return j;
}

}  // namespace

absl::Status CudaMoveRows(std::span<const MoveRequest> requests, Workspace& workspace,
                          MoveResult& result) {
  result = {};
  DeviceInputs inputs(workspace);
  std::map<WordShape, MovePlan> plans;
  for (const MoveRequest& request : requests) {
    const bool in_place = InPlace(request);
    const WordShape shape = ShapeOf(request.from, request.to);
    for (uint32_t head = 0; head < request.kept.size(); ++head) {
      const std::span<const int32_t> kept = request.kept[head];
      const uint32_t stay = in_place ? RowsThatStay(kept) : 0;
      if (stay == kept.size()) continue;
      result.bytes_written += (kept.size() - stay) * request.from.layout.row_bytes();
      KVTRIAGE_RETURN_IF_ERROR(plans.try_emplace(shape, shape)
                                   .first->second.Add({.from = request.from,
                                                       .from_rows = request.from_rows,
                                                       .kept = kept,
                                                       .to = request.to,
                                                       .to_rows = request.to_rows,
                                                       .put = {},
                                                       .head = head,
                                                       .rows = static_cast<uint32_t>(kept.size()),
                                                       .in_place = in_place,
                                                       .stay = stay},
                                                      inputs));
    }
  }
  for (const auto& [shape, plan] : plans) KVTRIAGE_RETURN_IF_ERROR(plan.Launch(workspace));
  return workspace.Finish();
}

}  // namespace kvtriage
