#include "service/engine/plan_writes.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/plan_tables.h"
#include "service/engine/rotation.h"

namespace kvtriage {
namespace {

constexpr size_t kMoreIndices = 16;

// First row of an ascending list that is not where it stands already. kept[j] - j never falls, so
// the rows behind it move too.
uint64_t FirstMoved(const std::vector<int32_t>& kept) {
  uint64_t low = 0, high = kept.size();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (static_cast<uint64_t>(kept[middle]) == middle) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Marks entries by runs and reads them off once.
class EntryMarks {
 public:
  explicit EntryMarks(uint64_t entries) : steps_(entries + 1) {}
  void Mark(uint64_t first, uint64_t last) {
    ++steps_[first];
    --steps_[last + 1];
  }
  std::vector<uint32_t> Marked() const {
    std::vector<uint32_t> marked;
    int64_t depth = 0;
    for (size_t i = 0; i + 1 < steps_.size(); ++i) {
      depth += steps_[i];
      if (depth > 0) marked.push_back(static_cast<uint32_t>(i));
    }
    return marked;
  }

 private:
  std::vector<int64_t> steps_;
};

uint32_t LongestList(const TriageResult& result) {
  size_t longest = 0;
  for (const std::vector<int32_t>& list : result.kept) longest = std::max(longest, list.size());
  return static_cast<uint32_t>(longest);
}

absl::Status CheckOneDestination(const CompressPlan& plan, size_t index,
                                 const SequenceWrites& writes) {
  const std::vector<int32_t>& table = plan.sequences[index].spec->destination;
  if (table.size() < writes.blocks_used) {
    return Error(ErrorReason::kDestinationTooSmall, SequenceField(index, "destination"),
                 "fewer blocks than the kept rows need")
        .Got(table.size())
        .Limit(writes.blocks_used);
  }
  return CheckTable(plan.destination, table, writes.blocks_used,
                    SequenceField(index, "destination"));
}

}  // namespace

SequenceWrites PlanWrites(const CompressPlan& plan, const PlanSequence& sequence,
                          const TriageResult& result, ActKind act) {
  SequenceWrites writes;
  writes.longest = LongestList(result);
  writes.blocks_used = sequence.entries;
  if (act == ActKind::kSelectOnly || result.noop) return writes;
  const PlanCache& target = act == ActKind::kCopy ? plan.destination : plan.cache;
  const uint64_t first_slot = sequence.spec->first_slot;
  writes.blocks_used = target.EntriesFor(first_slot + writes.longest);
  const RowPositions positions =
      PositionsFrom(sequence.spec->positions, sequence.spec->physical_len, 0);
  EntryMarks marks(writes.blocks_used);
  for (uint32_t l = 0; l < target.layers.size(); ++l) {
    const uint64_t block_slots = target.layers[l].k.layout.block_slots;
    for (uint32_t h = 0; h < target.layers[l].kv_heads(); ++h) {
      const std::vector<int32_t>& list = result.ListOf(l, h);
      const uint64_t first = act == ActKind::kCopy ? 0 : FirstMoved(list);
      for (uint64_t j = 0; plan.renumber && j < first; ++j) {
        if (!IsRenumbered(plan.cache.layers[l], positions, list, j)) continue;
        marks.Mark((first_slot + j) / block_slots, (first_slot + j) / block_slots);
      }
      if (first == list.size()) continue;
      marks.Mark((first_slot + first) / block_slots, (first_slot + list.size() - 1) / block_slots);
    }
  }
  writes.entries = marks.Marked();
  return writes;
}

SequenceWrites PlanRowWrites(const PlanCache& cache, const PlanSequence& sequence,
                             std::span<const int32_t> rows) {
  SequenceWrites writes;
  writes.longest = sequence.triage.rows;
  writes.blocks_used = sequence.entries;
  // Layers share a block table, so an entry holds the same rows in each.
  const uint64_t block_slots = cache.layers.front().k.layout.block_slots;
  for (const int32_t row : rows) {
    const uint64_t slot = sequence.spec->first_slot + static_cast<uint64_t>(row);
    const auto entry = static_cast<uint32_t>(slot / block_slots);
    if (writes.entries.empty() || writes.entries.back() != entry) writes.entries.push_back(entry);
  }
  return writes;
}

absl::Status CheckShared(const PlanSequence& sequence, size_t index, const SequenceWrites& writes) {
  std::vector<uint64_t> shared;
  for (const uint32_t entry : writes.entries) {
    if (sequence.spec->IsShared(entry)) shared.push_back(entry);
  }
  if (shared.empty()) return absl::OkStatus();
  Error error(ErrorReason::kBlockShared, SequenceField(index, "table"),
              "rows would move inside blocks that others can read");
  error.Index(shared.front());
  shared.erase(shared.begin());
  if (shared.size() > kMoreIndices) shared.resize(kMoreIndices);
  return error.MoreIndices(std::move(shared));
}

absl::Status CheckDestinations(const CompressPlan& plan, std::span<const SequenceWrites> writes) {
  std::unordered_set<int32_t> taken;
  if (plan.destination.registered->cache_id == plan.cache.registered->cache_id) {
    for (const PlanSequence& sequence : plan.sequences) {
      const auto begin = sequence.spec->table.begin();
      taken.insert(begin, begin + static_cast<int64_t>(sequence.entries));
    }
  }
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    if (writes[i].entries.empty()) continue;
    KVTRIAGE_RETURN_IF_ERROR(CheckOneDestination(plan, i, writes[i]));
    for (uint64_t entry = 0; entry < writes[i].blocks_used; ++entry) {
      const int32_t block = plan.sequences[i].spec->destination[entry];
      if (taken.insert(block).second) continue;
      return Error(ErrorReason::kDestinationOverlap, SequenceField(i, "destination"),
                   "block is a source or another destination")
          .Index(entry)
          .Got(static_cast<uint64_t>(block));
    }
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
