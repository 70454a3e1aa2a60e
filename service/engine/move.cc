#include "service/engine/move.h"

#include <span>
#include <utility>
#include <vector>

#include "kernels/core/status_macros.h"
#include "service/engine/rotation.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

std::vector<MoveRequest> MovesOf(const CompressPlan& plan, const PlanSequence& sequence,
                                 const TriageResult& result, const SequenceWrites& writes,
                                 ActKind act) {
  const SequenceSpec& spec = *sequence.spec;
  const bool copy = act == ActKind::kCopy;
  const SequenceRows from{spec.table.data(), spec.first_slot, sequence.triage.rows};
  const SequenceRows to{copy ? spec.destination.data() : spec.table.data(), spec.first_slot,
                        writes.longest};
  const std::vector<PlanLayer>& targets = copy ? plan.destination.layers : plan.cache.layers;
  std::vector<MoveRequest> moves;
  for (uint32_t l = 0; l < plan.cache.layers.size(); ++l) {
    const PlanLayer& source = plan.cache.layers[l];
    std::vector<std::span<const int32_t>> kept;
    for (uint32_t h = 0; h < source.kv_heads(); ++h) kept.push_back(result.ListOf(l, h));
    moves.push_back({source.k, from, targets[l].k, to, kept});
    if (!source.v_in_k) moves.push_back({source.v, from, targets[l].v, to, kept});
    for (size_t c = 0; c < source.companions.size(); ++c) {
      moves.push_back({source.companions[c], from, targets[l].companions[c], to, kept});
    }
  }
  return moves;
}

// Kept row j, now row j, turns from the position it had to position j.
absl::StatusOr<uint64_t> Renumber(Backend& backend, const CompressPlan& plan,
                                  const PlanSequence& sequence, const TriageResult& result,
                                  const SequenceWrites& writes, ActKind act) {
  const SequenceSpec& spec = *sequence.spec;
  const bool copy = act == ActKind::kCopy;
  Rotation rotation;
  rotation.rows = {copy ? spec.destination.data() : spec.table.data(), spec.first_slot,
                   writes.longest};
  rotation.count = writes.longest;
  rotation.from = PositionsFrom(spec.positions, spec.physical_len, 0);
  rotation.mode = *plan.renumber;
  rotation.kept = &result;
  return RotateRows(backend, plan.cache, copy ? plan.destination.layers : plan.cache.layers,
                    rotation);
}

absl::Status Move(Backend& backend, std::span<const MoveRequest> moves, uint64_t& bytes) {
  MoveResult result;
  KVTRIAGE_RETURN_IF_ERROR(backend.Move(moves, result));
  bytes += result.bytes_written;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> MoveSequence(Backend& backend, const CompressPlan& plan,
                                      const PlanSequence& sequence, const TriageResult& result,
                                      const SequenceWrites& writes, ActKind act) {
  const std::vector<MoveRequest> moves = MovesOf(plan, sequence, result, writes, act);
  uint64_t bytes = 0;
#ifdef KVTRIAGE_FAULT_POINTS
  // Two calls, so that a test can stop the service when some rows have moved and some have not.
  const size_t half = moves.size() / 2;
  KVTRIAGE_RETURN_IF_ERROR(Move(backend, std::span(moves).first(half), bytes));
  if (act == ActKind::kCopy) {
    FaultPoint("copy.mid_rows");
  } else {
    FaultPoint("move.mid_rows");
  }
  KVTRIAGE_RETURN_IF_ERROR(Move(backend, std::span(moves).subspan(half), bytes));
#else
  KVTRIAGE_RETURN_IF_ERROR(Move(backend, moves, bytes));
#endif
  if (!plan.renumber) return bytes;
  KVTRIAGE_ASSIGN_OR_RETURN(const uint64_t turned,
                            Renumber(backend, plan, sequence, result, writes, act));
  return bytes + turned;
}

}  // namespace kvtriage
