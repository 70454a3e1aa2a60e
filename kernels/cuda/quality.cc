#include "kernels/cuda/quality.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/logit_rule.h"
#include "kernels/core/quality_rules.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_inputs.h"
#include "kernels/cuda/quality_launch.h"
#include "kernels/cuda/query_rows.h"

namespace kvtriage {
namespace {

// One request: everything of its item but the rows of a round, and what came of the rows.
struct Measurement {
  QualityItem item{};
  size_t shape = 0;
  uint32_t units = 0;
  std::vector<RowQuality> rows;  // [KV heads][units]
};

// Some rows of a request that a round measures.
struct Piece {
  Measurement* of;
  uint32_t begin, count;
  uint64_t at;  // place of its rows in the round's results
};

size_t ShapeFor(const QualityRequest& request) {
  const uint32_t elems =
      std::max(request.layer.k.layout.row_elems, request.layer.v.layout.row_elems);
  size_t shape = 0;
  while (kQualityShapes[shape].elems < elems) ++shape;
  return shape;
}

// A bit for every token.
absl::StatusOr<const uint32_t*> KeptBits(const QualityRequest& request, uint32_t words,
                                         Workspace& workspace) {
  std::vector<uint32_t> bits(size_t{words} * request.kept.size());
  for (size_t head = 0; head < request.kept.size(); ++head) {
    for (const int32_t row : request.kept[head]) {
      const auto p = static_cast<uint32_t>(row);
      bits[head * words + p / 32] |= uint32_t{1} << p % 32;
    }
  }
  return workspace.Upload(std::span<const uint32_t>(bits));
}

absl::StatusOr<Measurement> Plan(const QualityRequest& request, Workspace& workspace,
                                 DeviceInputs& inputs) {
  const AttentionInput& input = request.input;
  Measurement made;
  QualityItem& item = made.item;
  const QueryPick pick{.window_rows = static_cast<uint32_t>(MeasuredRows(request)),
                       .reads_values = true};
  KVTRIAGE_ASSIGN_OR_RETURN(item.query,
                            MakeQueryItem(request.layer, input, pick, workspace, inputs));
  // A given LSE contains the sink; what it holds of the row has to be known all the same.
  const bool given = input.source == AttentionSource::kQueryOutput;
  if (given) item.query.sinks = OnDevice(input.sink_logits);
  if (input.source == AttentionSource::kReady) item.a = OnDevice(input.a);
  item.words = static_cast<uint32_t>(CeilDiv(request.layer.sequence.rows, 32));
  KVTRIAGE_ASSIGN_OR_RETURN(item.kept, KeptBits(request, item.words, workspace));
  item.finds_lse = input.source == AttentionSource::kQuery ? 1 : 0;
  item.has_sink = input.sink_logits ? 1 : 0;
  item.rule = LogitRuleOf(input);
  made.shape = ShapeFor(request);
  made.units = AllUnits(item.query);
  made.rows.resize(size_t{made.units} * item.query.v.heads);
  return made;
}

// Rows that are measured at once: as many as the workspace has room for.
class Round {
 public:
  explicit Round(Workspace& workspace) : workspace_(workspace) {}

  // Adds rows of `of` from `begin` on, all of them if there is room; returns how many. The first
  // piece has at least one row, or the workspace says that it is too small.
  absl::StatusOr<uint32_t> Add(Measurement& of, uint32_t begin) {
    const uint64_t heads = of.item.query.v.heads;
    const bool outputs = of.item.query.lse.base != nullptr;
    const uint32_t wanted = of.units - begin;
    const auto fits = [&](uint32_t units) {
      const uint64_t results = (rows_ + heads * units) * sizeof(QualityRow);
      const uint64_t items = (pieces_.size() + 1) * (sizeof(QualityItem) + sizeof(QueryItem));
      return QueryBytes(of.item.query, units, outputs) + results + items +
                 6 * Workspace::kAlignment <=
             workspace_.bytes_left();
    };
    uint32_t count = pieces_.empty() ? 1 : 0;  // the most that fit
    for (uint32_t step = std::bit_floor(wanted); step > 0; step /= 2) {
      if (count + step <= wanted && fits(count + step)) count += step;
    }
    if (count == 0) return count;
    items_.push_back(of.item);
    KVTRIAGE_RETURN_IF_ERROR(TakeQueryRoom(begin, count, outputs, workspace_, items_.back().query));
    pieces_.push_back({&of, begin, count, rows_});
    rows_ += heads * count;
    return count;
  }

  absl::Status Run() {
    if (pieces_.empty()) return absl::OkStatus();
    KVTRIAGE_ASSIGN_OR_RETURN(QualityRow * out, workspace_.Take<QualityRow>(rows_));
    KVTRIAGE_RETURN_IF_ERROR(GatherRows());
    for (size_t i = 0; i < pieces_.size(); ++i) items_[i].out = out + pieces_[i].at;
    for (size_t shape = 0; shape < std::size(kQualityShapes); ++shape) {
      KVTRIAGE_RETURN_IF_ERROR(MeasureRows(shape));
    }
    std::vector<QualityRow> rows(rows_);
    KVTRIAGE_RETURN_IF_ERROR(workspace_.Download<QualityRow>(out, rows));
    for (const Piece& piece : pieces_) Deliver(piece, &rows[piece.at]);
    return absl::OkStatus();
  }

 private:
  absl::Status GatherRows() {
    // Which rows may vote stands in the rows themselves; the counts are of no use here.
    uint32_t most_units = 0, most_heads = 0;
    for (const QualityItem& item : items_) {
      most_units = std::max(most_units, item.query.unit_count);
      most_heads = std::max(most_heads, item.query.k.heads);
    }
    KVTRIAGE_ASSIGN_OR_RETURN(uint32_t * counts, workspace_.TakeZeroed<uint32_t>(most_heads));
    std::vector<QueryItem> queries;
    for (QualityItem& item : items_) {
      item.query.usable = item.query.skipped = counts;
      queries.push_back(item.query);
    }
    KVTRIAGE_ASSIGN_OR_RETURN(const QueryItem* on_device,
                              workspace_.Upload(std::span<const QueryItem>(queries)));
    return CudaStatus(
        LaunchGatherRows(on_device, sizeof(QueryItem), static_cast<uint32_t>(queries.size()),
                         most_units, most_heads, workspace_.stream()),
        "quality.gather");
  }

  absl::Status MeasureRows(size_t shape) {
    std::vector<QualityItem> items;
    QualityExtent extent{};
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].of->shape != shape) continue;
      items.push_back(items_[i]);
      const QueryItem& query = items_[i].query;
      extent.units = std::max(extent.units, query.unit_count);
      extent.heads = std::max(extent.heads, query.v.heads);
      extent.dv = std::max(extent.dv, query.v.row_elems);
      extent.elems = std::max({extent.elems, query.k.row_elems, query.v.row_elems});
    }
    if (items.empty()) return absl::OkStatus();
    extent.items = static_cast<uint32_t>(items.size());
    KVTRIAGE_ASSIGN_OR_RETURN(const QualityItem* on_device,
                              workspace_.Upload(std::span<const QualityItem>(items)));
    return CudaStatus(LaunchQuality(on_device, shape, extent, workspace_.stream()),
                      "quality.launch");
  }

  static void Deliver(const Piece& piece, const QualityRow* rows) {
    const size_t heads = piece.of->item.query.v.heads;
    for (size_t head = 0; head < heads; ++head) {
      for (size_t n = 0; n < piece.count; ++n) {
        const QualityRow& row = rows[head * piece.count + n];
        if (row.seen == 0) continue;
        RowQuality& to = piece.of->rows[head * piece.of->units + piece.begin + n];
        to.total = row.total;
        if (!std::isfinite(row.total)) continue;
        to = {true, row.mass, row.total, row.error_square, row.output_square};
      }
    }
  }

  Workspace& workspace_;
  std::vector<QualityItem> items_;
  std::vector<Piece> pieces_;
  uint64_t rows_ = 0;  // of all pieces and KV heads
};

}  // namespace

absl::Status CudaMeasureLayers(std::span<const QualityRequest> requests, Workspace& workspace,
                               const StopCheck& stop, std::vector<QualityResult>& results) {
  results.assign(requests.size(), {});
  DeviceInputs inputs(workspace);
  std::vector<Measurement> measurements;
  for (const QualityRequest& request : requests) {
    if (stop) KVTRIAGE_RETURN_IF_ERROR(stop());
    KVTRIAGE_ASSIGN_OR_RETURN(measurements.emplace_back(), Plan(request, workspace, inputs));
  }
  const uint64_t mark = workspace.Mark();
  size_t next = 0;
  uint32_t begin = 0;
  while (next < measurements.size()) {
    Round round(workspace);
    bool room = true;
    while (room && next < measurements.size()) {
      Measurement& of = measurements[next];
      if (begin < of.units) {
        KVTRIAGE_ASSIGN_OR_RETURN(const uint32_t count, round.Add(of, begin));
        begin += count;
      }
      room = begin == of.units;
      if (room) begin = 0, ++next;
    }
    KVTRIAGE_RETURN_IF_ERROR(round.Run());
    workspace.Rewind(mark);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SummariseRows(requests[i], measurements[i].rows, results[i]);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
