#include "service/engine/sequence_table.h"

#include <algorithm>
#include <utility>

#include "kernels/core/error.h"

namespace kvtriage {
namespace {

Error Stale(std::string_view field, std::string_view text, uint64_t got, uint64_t known) {
  return Error(ErrorReason::kSequenceStale, field, text).Got(got).Limit(known);
}

absl::Status CheckConsistent(const SequenceSpec& call) {
  if (call.total_dropped <= call.logical_len &&
      call.physical_len == call.logical_len - call.total_dropped) {
    return absl::OkStatus();
  }
  const uint64_t expected =
      call.total_dropped <= call.logical_len ? call.logical_len - call.total_dropped : 0;
  return Stale("physical_len", "not logical_len minus total_dropped", call.physical_len, expected);
}

}  // namespace

SequenceTable::SequenceTable(uint32_t limit, std::shared_ptr<ScoreBudget> budget)
    : limit_(limit),
      budget_(budget != nullptr ? std::move(budget) : std::make_shared<ScoreBudget>(UINT64_MAX)) {}

absl::Status SequenceTable::Check(const SequenceSpec& call) {
  if (absl::Status status = CheckConsistent(call); !status.ok()) return status;
  const MutexLock lock(&mu_);
  const auto found = records_.find(call.sequence_id);
  if (found == records_.end()) {
    if (records_.size() < limit_ || scored_ < records_.size()) return absl::OkStatus();
    return Error(ErrorReason::kQuotaState, "sequence_id", "every known sequence has running scores")
        .Got(records_.size())
        .Limit(limit_);
  }
  Known& known = found->second;
  used_.splice(used_.end(), used_, known.used);
  if (call.generation > known.generation) return absl::OkStatus();
  if (call.generation < known.generation) {
    return Stale("generation", "older than the one we know", call.generation, known.generation);
  }
  // Lengths come before the revision: they tell a caller more.
  const bool followed = known.Followed(call);
  if (!followed && call.total_dropped != known.untouched.dropped) {
    const uint64_t dropped = known.length.dropped;
    const uint64_t expected = call.logical_len > dropped ? call.logical_len - dropped : 0;
    return Stale("physical_len", "does not fit the rows dropped so far", call.physical_len,
                 expected);
  }
  const uint64_t least = followed ? known.length.rows : known.untouched.rows;
  if (call.physical_len < least) {
    return Stale("physical_len", "fewer rows than we left", call.physical_len, least);
  }
  if (call.kv_revision != known.kv_revision) {
    return Stale("kv_revision", "not the last one we returned", call.kv_revision,
                 known.kv_revision);
  }
  return absl::OkStatus();
}

std::optional<size_t> SequenceTable::FirstWithoutScoreRoom(std::span<const SequenceSpec> calls) {
  const MutexLock lock(&mu_);
  uint64_t scored = scored_;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto found = records_.find(calls[i].sequence_id);
    if (found != records_.end() && found->second.scores != nullptr) continue;
    if (++scored > limit_) return i;
  }
  return std::nullopt;
}

absl::Status SequenceTable::CheckPositions(const SequenceSpec& call) {
  const MutexLock lock(&mu_);
  const auto found = records_.find(call.sequence_id);
  if (found == records_.end() || call.generation != found->second.generation) {
    return absl::OkStatus();
  }
  if (!found->second.Of(call).positions_differ) return absl::OkStatus();
  return Error(ErrorReason::kPositionsUnknown, "positions",
               "heads or layers have kept different rows: no list holds for all of them");
}

uint32_t SequenceTable::Record(const SequenceSpec& call, SequenceEffect effect, uint64_t kept,
                               PositionEffect positions) {
  const bool wrote = effect == SequenceEffect::kCopied || effect == SequenceEffect::kMoved;
  const MutexLock lock(&mu_);
  const auto [at, is_new] = records_.try_emplace(call.sequence_id);
  Known& known = at->second;
  const bool differed =
      !is_new && known.generation == call.generation && known.Of(call).positions_differ;
  const bool differ =
      positions == PositionEffect::kDiffer || (positions == PositionEffect::kSame && differed);
  const Length before{call.total_dropped, call.physical_len, differed};
  const Length after{call.logical_len - kept, kept, differ};
  if (is_new) known.used = used_.insert(used_.end(), call.sequence_id);
  used_.splice(used_.end(), used_, known.used);
  if (known.generation != call.generation) Put(known, nullptr);
  known.generation = call.generation;
  known.kv_revision = call.kv_revision + (wrote ? 1 : 0);
  known.length = effect == SequenceEffect::kNone ? before : after;
  known.untouched = effect == SequenceEffect::kMoved ? after : before;
  const uint32_t revision = known.kv_revision;
  if (records_.size() > limit_) MakeRoom(call.sequence_id);
  return revision;
}

void SequenceTable::MakeRoom(uint64_t but) {
  for (auto id = used_.begin(); id != used_.end(); ++id) {
    const auto found = records_.find(*id);
    if (*id == but || found->second.scores != nullptr) continue;
    records_.erase(found);
    used_.erase(id);
    return;
  }
}

bool SequenceTable::Forget(uint64_t sequence_id) {
  const MutexLock lock(&mu_);
  const auto found = records_.find(sequence_id);
  if (found == records_.end()) return false;
  Put(found->second, nullptr);
  used_.erase(found->second.used);
  records_.erase(found);
  return true;
}

std::shared_ptr<const RunningScores> SequenceTable::ScoresOf(uint64_t sequence_id,
                                                             uint32_t generation) {
  const MutexLock lock(&mu_);
  const auto found = records_.find(sequence_id);
  if (found == records_.end() || found->second.generation != generation) return nullptr;
  return found->second.scores;
}

void SequenceTable::SetScores(uint64_t sequence_id, std::shared_ptr<const RunningScores> scores) {
  const MutexLock lock(&mu_);
  const auto found = records_.find(sequence_id);
  if (found != records_.end()) Put(found->second, std::move(scores));
}

void SequenceTable::Put(Known& known, std::shared_ptr<const RunningScores> scores) {
  scored_ += (scores != nullptr ? 1u : 0u) - (known.scores != nullptr ? 1u : 0u);
  known.scores = std::move(scores);
}

std::optional<uint32_t> SequenceTable::GenerationOf(uint64_t sequence_id) {
  const MutexLock lock(&mu_);
  const auto found = records_.find(sequence_id);
  if (found == records_.end()) return std::nullopt;
  return found->second.generation;
}

void SequenceTable::TakeBack(uint64_t sequence_id, uint64_t rows) {
  const MutexLock lock(&mu_);
  const auto found = records_.find(sequence_id);
  if (found == records_.end()) return;
  for (Length* const length : {&found->second.length, &found->second.untouched}) {
    length->rows -= std::min(length->rows, rows);
  }
}

}  // namespace kvtriage
