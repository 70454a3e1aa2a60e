#include "kernels/cpu/score_window.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/core/logit_rule.h"
#include "kernels/core/score_rules.h"
#include "kernels/cpu/query_turner.h"
#include "kernels/cpu/row_blocks.h"

namespace kvtriage {
namespace {

constexpr double kLog2E = 1.4426950408889634074;

// Copies one row of a tensor as float32; false when an element is not finite.
bool LoadRow(const TensorView& tensor, uint64_t row, uint64_t head, float* out) {
  const std::byte* at = tensor.At(row, head, 0);
  if (tensor.dtype == DType::kF32 && tensor.elem_stride == sizeof(float)) {
    std::memcpy(out, at, tensor.elems * sizeof(float));
  } else {
    for (uint64_t k = 0; k < tensor.elems; ++k, at += tensor.elem_stride) {
      out[k] = LoadElement(at, tensor.dtype);
    }
  }
  // The exponent of infinities and NaN is all ones, and no other is; no float sum, so that the loop
  // can run in vectors.
  uint32_t special = 0;
  for (uint64_t k = 0; k < tensor.elems; ++k) {
    special |= (std::bit_cast<uint32_t>(out[k]) & 0x7F800000u) == 0x7F800000u ? 1 : 0;
  }
  return special == 0;
}

float SquareOf(const float* x, size_t elems) {
  // Four sums, so that none waits for another.
  double sums[4] = {};
  size_t k = 0;
  for (; k + 4 <= elems; k += 4) {
    for (size_t c = 0; c < 4; ++c) sums[c] += static_cast<double>(x[k + c]) * x[k + c];
  }
  for (; k < elems; ++k) sums[0] += static_cast<double>(x[k]) * x[k];
  return static_cast<float>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Packs outputs [rows][pitch], averaged over each vote's rows, and takes their squares.
void SetOutputs(const float* outputs, size_t elems, size_t pitch, size_t block_rows,
                RowBatch& batch) {
  batch.output_square.resize(batch.votes());
  if (batch.rows_per_vote == 1) {
    for (size_t row = 0; row < batch.rows; ++row) {
      batch.output_square[row] = SquareOf(outputs + row * pitch, elems);
    }
    PackRowBlocks(outputs, batch.rows, elems, pitch, block_rows,
                  batch.o.Reserve(batch.rows * elems));
    return;
  }
  std::vector<float> means(batch.votes() * elems);
  for (size_t vote = 0; vote < batch.votes(); ++vote) {
    for (size_t k = 0; k < elems; ++k) {
      double sum = 0;
      for (size_t r = 0; r < batch.rows_per_vote; ++r) {
        sum += outputs[(vote * batch.rows_per_vote + r) * pitch + k];
      }
      means[vote * elems + k] = static_cast<float>(sum / static_cast<double>(batch.rows_per_vote));
    }
    batch.output_square[vote] = SquareOf(means.data() + vote * elems, elems);
  }
  PackRowBlocks(means.data(), batch.votes(), elems, elems, block_rows,
                batch.o.Reserve(batch.votes() * elems));
}

void PushLse(double lse2, RowBatch& batch) {
  const float high = static_cast<float>(lse2);
  batch.lse2.push_back(high);
  batch.lse2_low.push_back(static_cast<float>(lse2 - high));
}

// Reads rows one after the other and keeps those that can vote.
class RowCollector {
 public:
  RowCollector(const ScoreRequest& request, size_t most_rows, RowBatch& batch)
      : layer_(request.layer),
        input_(request.input),
        batch_(batch),
        two_pass_(input_.source == AttentionSource::kQuery),
        has_q_(input_.source != AttentionSource::kReady),
        has_lse_(input_.source == AttentionSource::kQueryOutput),
        has_o_(input_.source != AttentionSource::kQuery && input_.o),
        needs_o_(has_o_ && NeedsOutputs(request.spec.scorer)),
        turner_(input_.rotation) {
    // One row more: a row that turns out bad is written before it is left out.
    if (has_q_) batch.gathered_q.resize((most_rows + 1) * input_.q.elems);
    if (has_o_) batch.gathered_o.resize((most_rows + 1) * input_.o.elems);
  }

  bool needs_outputs() const { return needs_o_; }

  // Takes the row, or returns false and leaves everything as it was.
  bool Take(uint32_t head, uint32_t row, int64_t limit, const GoodRows& good) {
    if (limit <= static_cast<int64_t>(good.first)) return false;
    const float slope2 = has_q_ ? AlibiSlope2(input_, head) : 0.0f;
    const double sink2 = two_pass_ ? SinkLogit2(input_, head) : kNoSink;
    if (!std::isfinite(slope2) || !(sink2 < -kNoSink)) return false;
    double lse2 = 0;
    if (has_lse_) {
      const double lse = LoadElement(input_.lse.At(row, head, 0), input_.lse.dtype);
      if (!std::isfinite(lse)) return false;
      lse2 = input_.lse_base == LseBase::k2 ? lse : lse * kLog2E;
    }
    float* const q = batch_.gathered_q.data() + batch_.rows * input_.q.elems;
    float* const o = batch_.gathered_o.data() + batch_.rows * input_.o.elems;
    if (has_q_ && !LoadRow(input_.q, row, head, q)) return false;
    if (has_q_) turner_.Turn(row, q);
    if (has_o_ && !LoadRow(input_.o, row, head, o)) return false;
    PushLse(lse2, batch_);
    batch_.first.push_back(static_cast<int32_t>(FirstVisible(layer_, limit)));
    batch_.limit.push_back(static_cast<int32_t>(limit));
    batch_.slope2.push_back(slope2);
    batch_.sink2.push_back(sink2);
    batch_.query_head.push_back(head);
    batch_.tensor_row.push_back(row);
    ++batch_.rows;
    return true;
  }

  // Forgets the newest rows until `rows` are left.
  void DropTo(size_t rows) {
    batch_.rows = rows;
    batch_.first.resize(rows);
    batch_.limit.resize(rows);
    batch_.slope2.resize(rows);
    batch_.sink2.resize(rows);
    batch_.lse2.resize(rows);
    batch_.lse2_low.resize(rows);
    batch_.query_head.resize(rows);
    batch_.tensor_row.resize(rows);
  }

 private:
  static constexpr double kNoSink = -std::numeric_limits<double>::infinity();

  const LayerRows& layer_;
  const AttentionInput& input_;
  RowBatch& batch_;
  const bool two_pass_, has_q_, has_lse_, has_o_, needs_o_;
  QueryTurner turner_;
};

}  // namespace

Window WindowOf(const ScoreRequest& request) {
  Window window;
  window.rows = WindowRows(request);
  window.first_row = SuppliedRows(request.input) - window.rows;
  window.group = request.layer.q_heads / request.layer.k.layout.heads;
  window.averaged = request.spec.reduce == Reduce::kPre;
  return window;
}

uint64_t RowBatch::LargestLimit() const {
  const auto largest = std::max_element(limit.begin(), limit.end());
  return largest == limit.end() ? 0 : static_cast<uint64_t>(*largest);
}

bool RowBatch::SeesSome(size_t row, size_t count, uint64_t begin, uint64_t end) const {
  bool some = false;
  for (size_t r = row; r < row + count; ++r) {
    some |= static_cast<uint64_t>(limit[r]) > begin && static_cast<uint64_t>(first[r]) < end;
  }
  return some;
}

bool RowBatch::SeesAll(size_t row, size_t count, uint64_t begin, uint64_t end) const {
  bool all = true;
  for (size_t r = row; r < row + count; ++r) {
    all &= static_cast<uint64_t>(limit[r]) >= end && static_cast<uint64_t>(first[r]) <= begin;
  }
  return all;
}

void GatherRows(const ScoreRequest& request, const Window& window, uint32_t kv_head,
                const GoodRowsOfWindow& good, size_t begin, size_t end, size_t block_rows,
                RowBatch& batch) {
  batch.rows_per_vote = window.averaged ? window.group : 1;
  RowCollector collector(request, end - begin, batch);
  collector.DropTo(0);
  batch.segments.clear();
  const size_t head0 = kv_head * window.group;
  const auto good_of = [&good](size_t row) -> const GoodRows& {
    return good.size() == 1 ? good[0] : good[row];
  };
  for (size_t n = begin; n < end; ++n) {
    const size_t head = window.averaged ? n % window.group : n / window.rows;
    const size_t row = window.averaged ? n / window.group : n % window.rows;
    const bool taken = collector.Take(static_cast<uint32_t>(head0 + head),
                                      static_cast<uint32_t>(window.first_row + row),
                                      LimitOf(request, window, row), good_of(row));
    if (window.averaged && !taken) {  // one head left out leaves the group out
      n = (n / window.group + 1) * window.group - 1;
      collector.DropTo(batch.rows / window.group * window.group);
    }
    if (!window.averaged && (n + 1 == end || row + 1 == window.rows)) {
      batch.segments.push_back({batch.rows, row + 1 == window.rows});
    }
  }
  if (window.averaged) batch.segments.push_back({batch.votes(), end == window.group_rows()});
  batch.usable = static_cast<uint32_t>(batch.rows);
  batch.skipped = static_cast<uint32_t>(end - begin - batch.rows);

  batch.drop_weight.resize(batch.votes());
  for (size_t vote = 0; vote < batch.votes(); ++vote) {
    const size_t first = vote * batch.rows_per_vote;
    const GoodRows& seen = good_of(batch.tensor_row[first] - window.first_row);
    const bool sees_two = static_cast<uint64_t>(batch.limit[first]) > seen.second;
    batch.drop_weight[vote] = sees_two ? 1.0f : 0.0f;
  }
  batch.output_square.assign(batch.votes(), 0.0f);
  batch.statistics.dominant.assign(batch.rows, -1);
  batch.statistics.pitch = 0;
  if (request.input.source != AttentionSource::kReady) {
    const size_t elems = request.input.q.elems;
    PackRowBlocks(batch.gathered_q.data(), batch.rows, elems, elems, block_rows,
                  batch.q.Reserve(batch.rows * elems));
  }
  if (collector.needs_outputs()) {
    const size_t elems = request.input.o.elems;
    SetOutputs(batch.gathered_o.data(), elems, elems, block_rows, batch);
  }
}

void ApplyStatistics(size_t elems, size_t block_rows, RowBatch& batch) {
  const RowStatistics& found = batch.statistics;
  batch.lse2.clear();
  batch.lse2_low.clear();
  for (const double lse2 : found.lse2) PushLse(lse2, batch);
  if (found.pitch != 0) {
    SetOutputs(found.output.data(), elems, found.pitch, block_rows, batch);
  }
  for (size_t vote = 0; vote < batch.votes(); ++vote) {
    const size_t first = vote * batch.rows_per_vote;
    bool finite = std::isfinite(batch.output_square[vote]);
    for (size_t r = first; r < first + batch.rows_per_vote; ++r) {
      finite = finite && std::isfinite(found.lse2[r]);
    }
    if (finite) continue;
    // Nothing is visible to the row any more, so it adds exactly nothing.
    std::fill_n(batch.limit.begin() + static_cast<ptrdiff_t>(first), batch.rows_per_vote, 0);
    batch.usable -= static_cast<uint32_t>(batch.rows_per_vote);
    batch.skipped += static_cast<uint32_t>(batch.rows_per_vote);
  }
}

}  // namespace kvtriage
