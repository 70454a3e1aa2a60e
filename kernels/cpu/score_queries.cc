#include "kernels/cpu/score_queries.h"

#include <algorithm>
#include <vector>

#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/cpu/score_statistics.h"
#include "kernels/cpu/score_tokens.h"
#include "kernels/cpu/score_window.h"

namespace kvtriage {
namespace {

// Fixed sizes, so that no sum depends on the machine. Rows of a batch share one read of K and V.
constexpr size_t kBatchRows = 512;
// Tokens of one piece of second-pass work, about.
constexpr size_t kRangeTokens = 1024;
// First-pass parts: enough for many cores, few enough to keep their partial outputs small.
constexpr size_t kMostParts = 16, kLeastPartTokens = 1024;
// Floats of packed rows and partial outputs of the KV heads worked on at the same time.
constexpr size_t kHeadFloats = size_t{8} << 20;

// What one KV head needs while a batch of its rows is worked on.
struct HeadWork {
  GoodRowsOfWindow good;
  RowBatch batch;
  std::vector<PartStatistics> parts;
  uint64_t usable = 0, skipped = 0;
};

// Kept from call to call: fetching fresh pages from the system would cost a short call more than
// its arithmetic.
struct Workspace {
  std::vector<HeadWork> heads;
  std::vector<StatisticsScratch> statistics;  // per worker
  std::vector<ScoreScratch> scores;           // per worker
  std::vector<float> carry;
};

class QueryScorer {
 public:
  QueryScorer(const ScoreRequest& request, ThreadTeam& team, Workspace& work, ScoreResult& result)
      : request_(request),
        team_(team),
        work_(work),
        result_(result),
        tokens_(request.layer.sequence.rows),
        window_(WindowOf(request)),
        shape_(ScoreTileShape()),
        two_pass_(request.input.source == AttentionSource::kQuery),
        rule_(LogitRuleOf(request.input)) {
    const size_t workers = static_cast<size_t>(team.threads());
    if (work.statistics.size() < workers) work.statistics.resize(workers);
    if (work.scores.size() < workers) work.scores.resize(workers);
    // The first pass has used the rounded scale.
    if (two_pass_) rule_.scale2_low = 0.0f;
    // With PRE a batch must hold whole groups.
    batch_rows_ = window_.averaged ? std::max<size_t>(1, kBatchRows / window_.group) * window_.group
                                   : kBatchRows;
    const size_t most = std::max(kLeastPartTokens, CeilDiv(tokens_, kMostParts));
    part_tokens_ = CeilDiv(most, shape_.panel_tokens) * shape_.panel_tokens;
    range_tokens_ = CeilDiv(kRangeTokens, shape_.panel_tokens) * shape_.panel_tokens;
    pitch_ = NeedsOutputs(request.spec.scorer) ? OutputPitch(request.layer.v.layout.row_elems) : 0;
  }

  absl::Status Run() {
    const uint32_t heads = request_.layer.k.layout.heads;
    result_.lists = heads;
    result_.scores.assign(heads * tokens_, 0.0f);
    result_.mass.assign(heads * tokens_, 0.0f);
    result_.usable_rows.assign(heads, 0);
    if (tokens_ == 0) return absl::OkStatus();
    const uint32_t at_once = HeadsAtOnce();
    for (uint32_t first = 0; first < heads; first += at_once) {
      ScoreHeads(first, std::min(at_once, heads - first));
    }
    for (uint32_t head = 0; head < heads && !request_.partial; ++head) {
      if (result_.usable_rows[head] == 0) {
        return Error(ErrorReason::kNoUsableRow, "inputs", "no query row of this KV head can vote")
            .Index(head);
      }
    }
    return absl::OkStatus();
  }

 private:
  uint32_t HeadsAtOnce() const {
    const size_t rows = std::min(batch_rows_, window_.group_rows());
    const size_t parts = two_pass_ ? CeilDiv(tokens_, part_tokens_) : 0;
    const size_t elems = request_.layer.k.layout.row_elems + request_.layer.v.layout.row_elems;
    const size_t carry = rows < window_.group_rows() ? tokens_ : 0;
    const size_t floats = rows * (2 * elems + (parts + 1) * (3 * pitch_ + 4)) + carry;
    const size_t fit = std::max<size_t>(1, kHeadFloats / std::max<size_t>(1, floats));
    return static_cast<uint32_t>(std::min<size_t>(fit, request_.layer.k.layout.heads));
  }

  // Scores KV heads [first, first + count).
  void ScoreHeads(uint32_t first, uint32_t count) {
    if (work_.heads.size() < count) work_.heads.resize(count);
    team_.Run(count, [&](size_t i, int) {
      HeadWork& head = work_.heads[i];
      head.good = FindGoodRows(request_, window_, first + static_cast<uint32_t>(i));
      head.usable = head.skipped = 0;
    });
    const size_t rows = window_.group_rows();
    if (rows > batch_rows_) work_.carry.resize(count * tokens_);
    for (size_t begin = 0; begin < rows; begin += batch_rows_) {
      ScoreBatch(first, count, begin, std::min(rows, begin + batch_rows_));
    }
    for (uint32_t i = 0; i < count; ++i) {
      result_.usable_rows[first + i] = static_cast<uint32_t>(work_.heads[i].usable);
      result_.skipped_rows += static_cast<uint32_t>(work_.heads[i].skipped);
    }
  }

  // Adds rows [begin, end) of every group's numbering.
  void ScoreBatch(uint32_t first_head, uint32_t count, size_t begin, size_t end) {
    team_.Run(count, [&](size_t i, int) {
      HeadWork& head = work_.heads[i];
      GatherRows(request_, window_, first_head + static_cast<uint32_t>(i), head.good, begin, end,
                 shape_.rows, head.batch);
    });
    if (two_pass_) FindStatistics(first_head, count);
    for (uint32_t i = 0; i < count; ++i) {
      work_.heads[i].usable += work_.heads[i].batch.usable;
      work_.heads[i].skipped += work_.heads[i].batch.skipped;
    }
    const size_t ranges = CeilDiv(tokens_, range_tokens_);
    team_.Run(count * ranges, [&](size_t item, int worker) {
      const size_t i = item / ranges, from = item % ranges * range_tokens_;
      const size_t head = first_head + i;
      ScoreTask task{request_, static_cast<uint32_t>(head), work_.heads[i].batch, rule_};
      task.first_batch = begin == 0;
      task.last_batch = end == window_.group_rows();
      task.scores = result_.scores.data() + head * tokens_;
      task.mass = result_.mass.data() + head * tokens_;
      task.carry = work_.carry.empty() ? nullptr : work_.carry.data() + i * tokens_;
      ScoreTokens(task, from, std::min<uint64_t>(tokens_, from + range_tokens_),
                  work_.scores[static_cast<size_t>(worker)]);
    });
  }

  void FindStatistics(uint32_t first_head, uint32_t count) {
    const size_t parts = CeilDiv(tokens_, part_tokens_);
    for (uint32_t i = 0; i < count; ++i) work_.heads[i].parts.resize(parts);
    const bool values = ReadsValues(request_.spec.scorer);
    team_.Run(count * parts, [&](size_t item, int worker) {
      HeadWork& head = work_.heads[item / parts];
      const uint64_t from = item % parts * part_tokens_;
      const uint64_t to = std::min<uint64_t>(tokens_, from + part_tokens_);
      const StatisticsTask task{request_.layer, first_head + static_cast<uint32_t>(item / parts),
                                head.batch,     values,
                                pitch_ != 0,    rule_};
      CollectStatistics(task, from, to, work_.statistics[static_cast<size_t>(worker)],
                        head.parts[item % parts]);
    });
    team_.Run(count, [&](size_t i, int) {
      HeadWork& head = work_.heads[i];
      JoinStatistics(head.parts, pitch_, head.batch);
      ApplyStatistics(request_.layer.v.layout.row_elems, shape_.rows, head.batch);
    });
  }

  const ScoreRequest& request_;
  ThreadTeam& team_;
  Workspace& work_;
  ScoreResult& result_;
  const uint64_t tokens_;
  const Window window_;
  const TileShape shape_;
  const bool two_pass_;
  LogitRule rule_;
  size_t batch_rows_ = 0, part_tokens_ = 0, range_tokens_ = 0;
  size_t pitch_ = 0;  // of outputs in the first pass; 0 when the scorer needs none
};

}  // namespace

absl::Status ScoreQueries(const ScoreRequest& request, ThreadTeam& team, ScoreResult& result) {
  thread_local Workspace workspace;
  return QueryScorer(request, team, workspace, result).Run();
}

}  // namespace kvtriage
