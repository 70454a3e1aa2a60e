#include "kernels/cuda/score_queries.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/score_rules.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/query_rows.h"
#include "kernels/cuda/score_launch.h"
#include "kernels/cuda/score_mma.h"
#include "kernels/cuda/token_tile.h"

namespace kvtriage {
namespace {

// Fixed sizes, so that no sum depends on the device. Rows of a batch share one read of K and V.
constexpr uint32_t kBatchRows = 512;
constexpr uint32_t kMmaBatchRows = 4096;
constexpr uint32_t kMostParts = 16, kLeastPartTokens = 1024;

ScoreTerm TermOf(Scorer scorer) {
  switch (scorer) {
    case Scorer::kObcValue:
      return ScoreTerm::kValue;
    case Scorer::kObcKey:
      return ScoreTerm::kKey;
    case Scorer::kObcJoint:
      return ScoreTerm::kJoint;
    case Scorer::kDrop:
      return ScoreTerm::kDrop;
    default:
      return ScoreTerm::kMass;
  }
}

ValueWeight WeightOf(Scorer scorer) {
  if (scorer == Scorer::kVatp) return ValueWeight::kMagnitude;
  return scorer == Scorer::kObcValue ? ValueWeight::kSquare : ValueWeight::kNone;
}

LogitRule RuleOf(const AttentionInput& input) {
  LogitRule rule = LogitRuleOf(input);
  // A first pass uses the rounded scale, so the second one has to.
  if (input.source == AttentionSource::kQuery) rule.scale2_low = 0;
  return rule;
}

// One request on its way.
struct Entry {
  const ScoreRequest* request;
  ScoreResult* result;
  ScoreTerm term;
  bool two_pass = false, outputs = false;
  MmaType mma = MmaType::kNone;
  uint32_t units = 0, batch = 0;  // of a KV head, and how many of them at once
  ScoreItem item{};

  uint64_t tokens() const { return request->layer.sequence.rows; }
  uint64_t heads() const { return request->layer.k.layout.heads; }
};

QueryPick PickOf(const ScoreRequest& request, MmaType mma) {
  QueryPick pick;
  pick.window_rows = WindowRows(request);
  pick.averaged = request.spec.reduce == Reduce::kPre;
  pick.reads_values = ReadsValues(request.spec.scorer);
  // A first pass has no other form of them.
  pick.widened = mma == MmaType::kNone || request.input.source == AttentionSource::kQuery;
  return pick;
}

// What can be said of a request before it meets the device.
Entry MakeEntry(const ScoreRequest& request, ScoreResult& result) {
  Entry entry{.request = &request, .result = &result, .term = TermOf(request.spec.scorer)};
  entry.two_pass = request.input.source == AttentionSource::kQuery;
  entry.outputs = NeedsOutputs(request.spec.scorer);
  entry.mma = MmaTypeOf(request);
  const QueryPick pick = PickOf(request, entry.mma);
  const uint32_t group = request.layer.q_heads / request.layer.k.layout.heads;
  entry.units = pick.averaged ? pick.window_rows : pick.window_rows * group;
  const uint32_t rows = pick.widened ? kBatchRows : kMmaBatchRows;
  entry.batch = std::min(entry.units, pick.averaged ? std::max(1u, rows / group) : rows);
  const uint64_t tokens = entry.tokens();
  const uint64_t part = std::max<uint64_t>(kLeastPartTokens, CeilDiv(tokens, kMostParts));
  entry.item.part_tokens = static_cast<uint32_t>(CeilDiv(part, kMostTileTokens) * kMostTileTokens);
  entry.item.parts = static_cast<uint32_t>(CeilDiv(tokens, entry.item.part_tokens));
  return entry;
}

// Requests of one kind that share their launches.
class QueryScorer {
 public:
  QueryScorer(std::span<Entry> entries, Workspace& workspace)
      : entries_(entries), workspace_(workspace), inputs_(workspace) {}

  absl::Status Run() {
    uint32_t batches = 1;
    for (Entry& entry : entries_) {
      KVTRIAGE_RETURN_IF_ERROR(Prepare(entry));
      if (entry.batch > 0) {
        batches = std::max(batches, static_cast<uint32_t>(CeilDiv(entry.units, entry.batch)));
      }
    }
    // Every batch uses the same place for its items.
    KVTRIAGE_ASSIGN_OR_RETURN(items_, workspace_.Take<ScoreItem>(entries_.size()));
    for (uint32_t batch = 0; batch < batches; ++batch) {
      KVTRIAGE_RETURN_IF_ERROR(RunBatch(batch));
    }
    for (const Entry& entry : entries_) KVTRIAGE_RETURN_IF_ERROR(Collect(entry));
    return absl::OkStatus();
  }

 private:
  // Memory and everything of the item that no batch changes.
  absl::Status Prepare(Entry& entry) {
    const ScoreRequest& request = *entry.request;
    ScoreItem& item = entry.item;
    KVTRIAGE_ASSIGN_OR_RETURN(
        item.rows, MakeQueryItem(request.layer, request.input, PickOf(request, entry.mma),
                                 workspace_, inputs_));
    KVTRIAGE_RETURN_IF_ERROR(TakeQueryRoom(
        0, entry.batch, entry.outputs && entry.mma == MmaType::kNone, workspace_, item.rows));
    KVTRIAGE_ASSIGN_OR_RETURN(item.rows.usable, workspace_.TakeZeroed<uint32_t>(entry.heads()));
    KVTRIAGE_ASSIGN_OR_RETURN(item.rows.skipped, workspace_.TakeZeroed<uint32_t>(entry.heads()));
    item.rule = RuleOf(request.input);
    if (request.input.source == AttentionSource::kReady) {
      item.a = OnDevice(request.input.a);
      item.z = OnDevice(request.input.z);
    }
    const uint64_t rows = uint64_t{item.rows.row_count()} * entry.heads();
    const uint64_t dv = item.rows.o_elems;
    if (entry.two_pass) {
      KVTRIAGE_ASSIGN_OR_RETURN(item.row_parts, workspace_.Take<RowPart>(rows * item.parts));
    }
    if (entry.two_pass && entry.outputs) {
      KVTRIAGE_ASSIGN_OR_RETURN(item.part_outputs, workspace_.Take<float>(rows * item.parts * dv));
      KVTRIAGE_ASSIGN_OR_RETURN(item.rest_rows, workspace_.Take<float>(rows * dv));
    }
    const uint64_t scores = entry.heads() * entry.tokens();
    KVTRIAGE_ASSIGN_OR_RETURN(item.scores, workspace_.Take<float>(scores));
    KVTRIAGE_ASSIGN_OR_RETURN(item.mass, workspace_.Take<float>(scores));
    KVTRIAGE_ASSIGN_OR_RETURN(item.carry, workspace_.Take<float>(scores));
    item.largest = request.spec.reduce == Reduce::kMax ? 1 : 0;
    item.mean = request.spec.reduce == Reduce::kMean ? 1 : 0;
    item.weight = WeightOf(request.spec.scorer);
    item.wide = WideInputsOf(request);
    return absl::OkStatus();
  }

  absl::Status RunBatch(uint32_t batch) {
    std::vector<ScoreItem> items;
    ScoreSizes sizes;
    for (Entry& entry : entries_) {
      const uint32_t begin = batch * entry.batch;
      if (batch > 0 && begin >= entry.units) continue;
      ScoreItem& item = entry.item;
      item.rows.unit_begin = begin;
      item.rows.unit_count = std::min(entry.batch, entry.units - begin);
      item.first_batch = batch == 0 ? 1 : 0;
      item.last_batch = begin + item.rows.unit_count == entry.units ? 1 : 0;
      items.push_back(item);
      Widen(item, sizes);
    }
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Fill(items_, std::span<const ScoreItem>(items)));
    return Launch(sizes);
  }

  // Takes an item into the sizes of its launches.
  static void Widen(const ScoreItem& item, ScoreSizes& sizes) {
    const QueryItem& rows = item.rows;
    const uint32_t tokens = TileTokens(std::max(rows.k.row_elems, rows.v.row_elems));
    ++sizes.items;
    sizes.heads = std::max(sizes.heads, rows.k.heads);
    sizes.units = std::max(sizes.units, rows.unit_count);
    sizes.rows = std::max(sizes.rows, rows.row_count());
    sizes.parts = std::max(sizes.parts, item.parts);
    sizes.tiles = std::max(sizes.tiles, static_cast<uint32_t>(CeilDiv(rows.tokens, tokens)));
    sizes.tokens = std::max(sizes.tokens, rows.tokens);
    sizes.row_elems = std::max(sizes.row_elems, rows.k.row_elems);
    if (rows.reads_values != 0) sizes.row_elems = std::max(sizes.row_elems, rows.v.row_elems);
    sizes.value_elems = std::max(sizes.value_elems, rows.v.row_elems);
    sizes.key_bytes = std::max(sizes.key_bytes, TileBytes(tokens, rows.k.row_elems));
    if (rows.reads_values != 0) {
      sizes.value_bytes = std::max(sizes.value_bytes, TileBytes(tokens, rows.v.row_elems));
    }
  }

  absl::Status Launch(const ScoreSizes& sizes) {
    const cudaStream_t stream = workspace_.stream();
    if (sizes.units > 0) {
      KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchGatherRows(&items_->rows, sizeof(ScoreItem), sizes.items,
                                                     sizes.units, sizes.heads, stream),
                                    "score.gather");
    }
    if (sizes.units > 0 && entries_[0].two_pass) {
      KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchRowParts(items_, sizes, stream), "score.rows");
      KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchJoinRows(items_, sizes, stream), "score.join_rows");
    }
    if (sizes.units > 0 && entries_[0].two_pass && entries_[0].outputs) {
      KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchOutputParts(items_, sizes, stream), "score.outputs");
      KVTRIAGE_RETURN_IF_CUDA_ERROR(LaunchJoinOutputs(items_, sizes, stream), "score.join_outputs");
    }
    const ScoreTerm term = entries_[0].term;
    switch (entries_[0].mma) {
      case MmaType::kBf16:
        return CudaStatus(LaunchScoreMmaBf16(term, items_, sizes, stream), "score.mma");
      case MmaType::kF16:
        return CudaStatus(LaunchScoreMmaF16(term, items_, sizes, stream), "score.mma");
      case MmaType::kNone:
        break;
    }
    return CudaStatus(LaunchScoreTokens(term, items_, sizes, stream), "score.tokens");
  }

  absl::Status Collect(const Entry& entry) {
    const ScoreItem& item = entry.item;
    ScoreResult& result = *entry.result;
    const auto heads = static_cast<uint32_t>(entry.heads());
    result.scores.resize(heads * entry.tokens());
    result.mass.resize(heads * entry.tokens());
    result.usable_rows.resize(heads);
    std::vector<uint32_t> skipped(heads);
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<float>(item.scores, result.scores));
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<float>(item.mass, result.mass));
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<uint32_t>(item.rows.usable, result.usable_rows));
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<uint32_t>(item.rows.skipped, skipped));
    result.skipped_rows = std::accumulate(skipped.begin(), skipped.end(), 0u);
    for (uint32_t head = 0; head < heads && !entry.request->partial; ++head) {
      if (result.usable_rows[head] == 0) {
        return Error(ErrorReason::kNoUsableRow, "inputs", "no query row of this KV head can vote")
            .Index(head);
      }
    }
    return absl::OkStatus();
  }

  const std::span<Entry> entries_;
  Workspace& workspace_;
  DeviceInputs inputs_;
  ScoreItem* items_ = nullptr;
};

bool ShareLaunches(const Entry& a, const Entry& b) {
  return a.term == b.term && a.two_pass == b.two_pass && a.outputs == b.outputs && a.mma == b.mma;
}

}  // namespace

absl::Status CudaScoreQueries(ScoreRequests requests, Workspace& workspace, ScoreResults results) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < requests.size(); ++i) {
    ScoreResult& result = *results[i];
    result.lists = requests[i]->layer.k.layout.heads;
    result.usable_rows.assign(result.lists, 0);
    if (requests[i]->layer.sequence.rows > 0) entries.push_back(MakeEntry(*requests[i], result));
  }
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin + 1;
    while (end < entries.size() && ShareLaunches(entries[begin], entries[end])) ++end;
    KVTRIAGE_RETURN_IF_ERROR(
        QueryScorer(std::span(entries).subspan(begin, end - begin), workspace).Run());
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
