#include "kernels/cuda/rotate.h"

#include <vector>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/rotate_launch.h"

namespace kvtriage {
namespace {

absl::StatusOr<DevicePositions> Positions(const RowPositions& positions, const Rope& rope,
                                          DeviceInputs& inputs) {
  DevicePositions made{.first = positions.first, .list = nullptr, .rows = positions.rows};
  if (positions.list == nullptr) return made;
  const std::span<const int32_t> list(positions.list, size_t{rope.planes()} * positions.rows);
  KVTRIAGE_ASSIGN_OR_RETURN(made.list, inputs.List(list));
  return made;
}

// Rows of one list that change their position.
uint64_t RowsThatTurn(const RotateRequest& request, std::span<const int32_t> from_rows) {
  const bool planes = request.rope->multi_plane();
  uint64_t turn = 0;
  for (uint32_t j = 0; j < request.count; ++j) {
    const uint64_t before = from_rows.empty() ? j : static_cast<uint64_t>(from_rows[j]);
    if (request.from.At(before, planes) != request.to.At(j, planes)) ++turn;
  }
  return turn;
}

uint64_t TurnedRows(const RotateRequest& request) {
  const uint64_t lists = request.keys.size() * request.keys.front().layout.heads;
  if (request.from_rows.empty()) return lists * RowsThatTurn(request, {});
  uint64_t turned = 0;
  for (const std::span<const int32_t> list : request.from_rows) {
    turned += RowsThatTurn(request, list);
  }
  return turned;
}

absl::StatusOr<RotateArgs> MakeArgs(const RotateRequest& request, Workspace& workspace,
                                    DeviceInputs& inputs) {
  const Rope& rope = *request.rope;
  RotateArgs args{};
  std::vector<DeviceView> layers;
  for (const KvView& keys : request.keys) {
    KVTRIAGE_ASSIGN_OR_RETURN(layers.emplace_back(), inputs.View(keys, request.rows));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(args.layers, workspace.Upload(std::span<const DeviceView>(layers)));
  args.first_row = request.first_row;
  args.count = request.count;
  args.half = rope.pairing == RopePairing::kHalf ? 1 : 0;
  args.pairs = rope.rotary_dim / 2;
  args.offset = rope.offset;
  args.exact = request.mode == AngleMode::kExact ? 1 : 0;
  KVTRIAGE_ASSIGN_OR_RETURN(args.speeds, workspace.Upload(std::span<const double>(rope.speeds)));
  for (uint32_t plane = 0, end = 0; plane < 3; ++plane) {
    end += rope.sections[plane];
    args.section_ends[plane] = rope.multi_plane() ? end : args.pairs;
  }
  KVTRIAGE_ASSIGN_OR_RETURN(args.from, Positions(request.from, rope, inputs));
  KVTRIAGE_ASSIGN_OR_RETURN(args.to, Positions(request.to, rope, inputs));
  if (request.from_rows.empty()) return args;
  std::vector<const int32_t*> lists;
  for (const std::span<const int32_t> list : request.from_rows) {
    KVTRIAGE_ASSIGN_OR_RETURN(lists.emplace_back(), inputs.List(list));
  }
  KVTRIAGE_ASSIGN_OR_RETURN(args.from_rows,
                            workspace.Upload(std::span<const int32_t* const>(lists)));
  return args;
}

}  // namespace

absl::Status CudaRotateKeys(std::span<const RotateRequest> requests, Workspace& workspace,
                            RotateResult& result) {
  result = {};
  DeviceInputs inputs(workspace);
  for (const RotateRequest& request : requests) {
    if (request.keys.empty() || request.count == 0 || request.rope->rotary_dim == 0) continue;
    KVTRIAGE_ASSIGN_OR_RETURN(const RotateArgs args, MakeArgs(request, workspace, inputs));
    const size_t heads = request.from_rows.empty() ? 1 : request.keys.front().layout.heads;
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        LaunchRotate(args, static_cast<uint32_t>(request.keys.size() * heads), workspace.stream()),
        "rotate.launch");
    result.bytes_written += TurnedRows(request) * request.rope->rotary_dim *
                            ElementBytes(request.keys.front().layout.dtype);
  }
  return workspace.Finish();
}

}  // namespace kvtriage
