#include "service/engine/plan_tables.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMaxRows = 1u << 24;  // row numbers travel as int32

uint64_t ListsOf(const PlanCache& cache, Granularity granularity) {
  if (granularity == Granularity::kPerSequence) return 1;
  if (granularity == Granularity::kPerLayer) return cache.layers.size();
  uint64_t lists = 0;
  for (const PlanLayer& layer : cache.layers) lists += layer.kv_heads();
  return lists;
}

absl::Status CheckProtect(const PlanCache& cache, const SequenceSpec& spec, size_t index) {
  const ExplicitRows& protect = spec.protect;
  if (protect.lists.empty()) return absl::OkStatus();
  const uint64_t expected = ListsOf(cache, protect.granularity);
  if (protect.lists.size() != expected) {
    return Error(ErrorReason::kFieldInvalid, SequenceField(index, "protect.counts_le"),
                 "number of lists does not fit the layers and KV heads of the call")
        .Got(protect.lists.size())
        .Limit(expected);
  }
  uint64_t before = 0;
  for (const std::vector<int32_t>& list : protect.lists) {
    for (size_t i = 0; i < list.size(); ++i) {
      const uint64_t row = static_cast<uint32_t>(list[i]);  // a negative one is outside too
      if (row < spec.physical_len) continue;
      return Error(ErrorReason::kIndexOutOfRange, SequenceField(index, "protect.indices_le"),
                   "row outside the sequence")
          .Index(before + i)
          .Got(row)
          .Limit(spec.physical_len);
    }
    before += list.size();
  }
  return absl::OkStatus();
}

// One use of a block by a table entry.
struct Use {
  int32_t block = 0;
  uint32_t sequence = 0;
  uint64_t entry = 0;
};

// Whether any block is used twice, by marking bits: no sort on the usual path. `false` is exact;
// when the ids are too far apart for a small set of bits the answer is "maybe".
bool MayRepeat(std::span<const PlanSequence> sequences) {
  int32_t low = INT32_MAX, high = 0;
  uint64_t uses = 0;
  for (const PlanSequence& sequence : sequences) {
    for (uint64_t i = 0; i < sequence.entries; ++i) {
      low = std::min(low, sequence.spec->table[i]);
      high = std::max(high, sequence.spec->table[i]);
    }
    uses += sequence.entries;
  }
  if (uses < 2) return false;
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  if (range > 256 * uses + 4096) return true;
  std::vector<uint64_t> seen(CeilDiv(range, 64));
  for (const PlanSequence& sequence : sequences) {
    for (uint64_t i = 0; i < sequence.entries; ++i) {
      const uint64_t bit = static_cast<uint64_t>(sequence.spec->table[i] - low);
      const uint64_t mask = uint64_t{1} << (bit % 64);
      if ((seen[bit / 64] & mask) != 0) return true;
      seen[bit / 64] |= mask;
    }
  }
  return false;
}

std::vector<Use> SortedUses(std::span<const PlanSequence> sequences) {
  std::vector<Use> uses;
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    for (uint64_t i = 0; i < sequences[s].entries; ++i) {
      uses.push_back({sequences[s].spec->table[i], s, i});
    }
  }
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    if (a.block != b.block) return a.block < b.block;
    return a.sequence != b.sequence ? a.sequence < b.sequence : a.entry < b.entry;
  });
  return uses;
}

}  // namespace

std::string SequenceField(size_t index, std::string_view name) {
  return absl::StrCat("sequences[", index, "].", absl::string_view(name.data(), name.size()));
}

absl::Status CheckIds(std::span<const int32_t> ids, uint32_t num_blocks, std::string_view field) {
  const auto outside = [num_blocks](int32_t id) { return static_cast<uint32_t>(id) >= num_blocks; };
  const auto bad = std::find_if(ids.begin(), ids.end(), outside);
  if (bad == ids.end()) return absl::OkStatus();
  return Error(ErrorReason::kBlockOutOfRange, field, "block id outside the cache")
      .Index(static_cast<uint64_t>(bad - ids.begin()))
      .Got(static_cast<uint32_t>(*bad))
      .Limit(num_blocks);
}

absl::Status CheckTable(const PlanCache& cache, std::span<const int32_t> table, uint64_t entries,
                        std::string_view field) {
  if (table.size() < entries) {
    return Error(ErrorReason::kTableTooShort, field, "fewer blocks than the rows need")
        .Got(table.size())
        .Limit(entries);
  }
  // K, V and companions of a layer agree in their number of blocks; layers may not.
  uint32_t num_blocks = UINT32_MAX;
  for (const PlanLayer& layer : cache.layers) {
    num_blocks = std::min({num_blocks, layer.k.layout.num_blocks, layer.v.layout.num_blocks});
    for (const KvView& companion : layer.companions) {
      num_blocks = std::min(num_blocks, companion.layout.num_blocks);
    }
  }
  return CheckIds(table.first(entries), num_blocks, field);
}

absl::Status PlanRows(const PlanCache& cache, const SequenceSpec& spec, size_t index,
                      PlanSequence& sequence) {
  if (spec.physical_len > kMaxRows) {
    return Error(ErrorReason::kTooMany, SequenceField(index, "physical_len"), "rows per sequence")
        .Got(spec.physical_len)
        .Limit(kMaxRows);
  }
  sequence.spec = &spec;
  sequence.triage.rows = static_cast<uint32_t>(spec.physical_len);
  sequence.triage.model_layers = cache.registered->spec.num_layers;
  sequence.triage.protect = spec.protect.lists.empty() ? nullptr : &spec.protect;
  // An empty sequence has no row to skip padding for.
  sequence.entries =
      spec.physical_len == 0 ? 0 : cache.EntriesFor(uint64_t{spec.first_slot} + spec.physical_len);
  KVTRIAGE_RETURN_IF_ERROR(
      CheckTable(cache, spec.table, sequence.entries, SequenceField(index, "table")));
  return CheckProtect(cache, spec, index);
}

absl::Status CheckDuplicates(std::span<const PlanSequence> sequences) {
  if (!MayRepeat(sequences)) return absl::OkStatus();
  const std::vector<Use> uses = SortedUses(sequences);
  for (size_t i = 1; i < uses.size(); ++i) {
    const Use& a = uses[i - 1];
    const Use& b = uses[i];
    if (a.block != b.block) continue;
    const bool one_table = a.sequence == b.sequence;
    if (!one_table && sequences[a.sequence].spec->IsShared(a.entry) &&
        sequences[b.sequence].spec->IsShared(b.entry)) {
      continue;
    }
    return Error(ErrorReason::kBlockDuplicate, SequenceField(b.sequence, "table"),
                 one_table ? "block twice in one table"
                           : "block in two tables that do not both mark it shared")
        .Index(b.entry)
        .Got(static_cast<uint64_t>(b.block));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
