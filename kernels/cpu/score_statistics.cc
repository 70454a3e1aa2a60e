#include "kernels/cpu/score_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/score_statistics.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/bend-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/stream-inl.h"
#include "kernels/cpu/visible-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
// How far (base 2) a logit may lie above the reference before the sums are moved to a new one. Sums
// of up to 2^24 weights of 2^60 fit float32 well.
constexpr float kHeadroom = 60.0f;

size_t OutputPitchOf(size_t elems) { return (elems + kLanes - 1) / kLanes * kLanes; }

// Puts the logits (base 2) of one row in place of its products; -Inf where nothing is visible.
// Returns the largest of each lane.
HWY_INLINE V ScaleRow(float* products, const int32_t* tokens, int32_t first, int32_t limit,
                      float scale2) {
  const D d;
  V top = hn::Set(d, kMinusInf);
  for (size_t v = 0; v < kPanel; v += kLanes) {
    const V x = hn::IfThenElse(Visible(tokens + v, first, limit),
                               hn::Mul(hn::Load(d, products + v), hn::Set(d, scale2)),
                               hn::Set(d, kMinusInf));
    hn::Store(x, d, products + v);
    top = hn::Max(top, x);
  }
  return top;
}

// Where a row's sums lie.
struct RowSums {
  float* lanes;  // [2 * kLanes]: sums of weights, what rounding has added
  float *output, *lost, *heaviest_value;
  size_t pitch;
};

// Moves the sums of one row to a higher reference: a whole number, so that the factor is exact.
void RaiseTop(float logit, const RowSums& row, float* top) {
  const float old_top = *top;
  *top = std::ceil(logit);
  const float factor = old_top == kMinusInf ? 0.0f : std::exp2(old_top - *top);
  for (size_t i = 0; i < 2 * kLanes; ++i) row.lanes[i] *= factor;
  for (size_t k = 0; k < row.pitch; ++k) {
    row.output[k] *= factor;
    row.lost[k] *= factor;
  }
}

// Adds the token that was kept out so far to the sums.
void Release(float weight, const RowSums& row) {
  const D d;
  HWY_ALIGN float only_first[kLanes] = {weight};
  V sum = hn::Load(d, row.lanes), lost = hn::Load(d, row.lanes + kLanes);
  AddCompensated(hn::Load(d, only_first), sum, lost);
  hn::Store(sum, d, row.lanes);
  hn::Store(lost, d, row.lanes + kLanes);
  for (size_t k = 0; k < row.pitch; k += kLanes) {
    V output = hn::Load(d, row.output + k), low = hn::Load(d, row.lost + k);
    AddCompensated(hn::Mul(hn::Set(d, weight), hn::Load(d, row.heaviest_value + k)), output, low);
    hn::Store(output, d, row.output + k);
    hn::Store(low, d, row.lost + k);
  }
}

// Keeps the heaviest token of this panel out of the sums in place of the one before. `logits` loses
// it.
HWY_NOINLINE void KeepOut(uint64_t begin, const float* values, size_t row_index, const RowSums& row,
                          float* logits, PartStatistics& part) {
  float* const heaviest = std::max_element(logits, logits + kPanel);
  float& top = part.top[row_index];
  if (*heaviest > top + kHeadroom) RaiseTop(*heaviest, row, &top);
  const float before = part.heaviest[row_index];
  if (before != kMinusInf) Release(std::exp2(before - top), row);
  const size_t t = static_cast<size_t>(heaviest - logits);
  part.heaviest[row_index] = *heaviest;
  part.heaviest_token[row_index] = static_cast<int32_t>(begin + t);
  std::copy_n(values + t * row.pitch, row.pitch, row.heaviest_value);
  *heaviest = kMinusInf;
}

// Puts weights in place of the logits of one row and adds them up (sums, then what rounding cost).
HWY_INLINE void WeighRow(float* logits, float top, float* lane_sums) {
  const D d;
  V panel_sum = hn::Zero(d);
  for (size_t v = 0; v < kPanel; v += kLanes) {
    const V x = hn::Load(d, logits + v);
    const V weight =
        hn::IfThenElseZero(hn::Gt(x, hn::Set(d, kMinusInf)), Exp2(hn::Sub(x, hn::Set(d, top))));
    hn::Store(weight, d, logits + v);
    panel_sum = hn::Add(panel_sum, weight);
  }
  V sum = hn::Load(d, lane_sums), lost = hn::Load(d, lane_sums + kLanes);
  AddCompensated(panel_sum, sum, lost);
  hn::Store(sum, d, lane_sums);
  hn::Store(lost, d, lane_sums + kLanes);
}

// Adds a panel of tokens, whose products with a block of rows lie in scratch.tile, to the
// statistics of these rows.
HWY_INLINE void AddPanel(const StatisticsTask& task, uint64_t begin, const int32_t* tokens,
                         size_t first, size_t rows, size_t pitch, StatisticsScratch& scratch,
                         PartStatistics& part) {
  const D d;
  float* const tile = scratch.tile.data();
  for (size_t r = 0; r < rows; ++r) {
    const size_t row = first + r;
    float* const products = tile + r * kPanel;
    float* const lanes = scratch.lane_sums.data() + row * 2 * kLanes;
    const int32_t limit = task.rows.limit[row];
    if (!task.rule.plain) {
      BendRow(task.rule, begin, limit - 1, task.rows.slope2[row], products, nullptr);
    }
    const V largest =
        ScaleRow(products, tokens, task.rows.first[row], limit, task.rule.bent_scale2());
    if (!hn::AllFalse(d, hn::Gt(largest, hn::Set(d, part.heaviest[row])))) {
      RowSums sums{lanes, nullptr, nullptr, nullptr, 0};
      if (task.outputs) {
        sums = {lanes, part.output.data() + row * pitch, part.lost.data() + row * pitch,
                part.heaviest_value.data() + row * pitch, pitch};
      }
      KeepOut(begin, scratch.values.data(), row, sums, products, part);
    }
    WeighRow(products, part.top[row], lanes);
  }
  if (task.outputs) {
    AddValues(tile, rows, scratch.values.data(), pitch / kLanes, part.output.data() + first * pitch,
              part.lost.data() + first * pitch);
  }
}

void CollectStatisticsImpl(const StatisticsTask& task, uint64_t begin, uint64_t end,
                           StatisticsScratch& scratch, PartStatistics& part) {
  const RowBatch& batch = task.rows;
  const size_t dk = task.layer.k.layout.row_elems;
  const size_t pitch = task.reads_values ? OutputPitchOf(task.layer.v.layout.row_elems) : 0;
  scratch.pack.Reserve(PackScratchFloats(dk));
  scratch.keys.Reserve(PanelFloats(dk));
  scratch.values.Reserve(kPanel * pitch);
  scratch.tile.Reserve(kTileRows * kPanel);
  std::fill_n(scratch.lane_sums.Reserve(batch.rows * 2 * kLanes), batch.rows * 2 * kLanes, 0.0f);
  part.top.assign(batch.rows, kMinusInf);
  part.heaviest.assign(batch.rows, kMinusInf);
  part.heaviest_token.assign(batch.rows, -1);
  if (task.outputs) {
    std::fill_n(part.output.Reserve(batch.rows * pitch), batch.rows * pitch, 0.0f);
    std::fill_n(part.lost.Reserve(batch.rows * pitch), batch.rows * pitch, 0.0f);
    part.heaviest_value.Reserve(batch.rows * pitch);
  }
  // Behind the largest limit nothing is visible.
  end = std::min<uint64_t>(end, batch.LargestLimit());
  // One block of rows is multiplied while the keys are read.
  const bool stream = batch.rows > 0 && batch.rows <= kTileRows && CanStream(task.layer.k.layout);
  HWY_ALIGN float bad[kPanel], bad_values[kPanel] = {};
  HWY_ALIGN int32_t tokens[kPanel];
  for (uint64_t p = begin; p < end; p += kPanel) {
    const size_t count = std::min<uint64_t>(kPanel, end - p);
    const TokenRange keys{task.layer.k, task.layer.sequence, task.kv_head, p, count};
    if (stream) {
      StreamProducts<Norm::kNone>(keys, batch.q.data(), batch.rows, scratch.pack.data(),
                                  scratch.tile.data(), bad, bad);
    } else {
      PackPanel<Norm::kNone>(keys, scratch.pack.data(), scratch.keys.data(), bad, bad);
    }
    if (task.reads_values) {
      PackValueRows({task.layer.v, task.layer.sequence, task.kv_head, p, count}, pitch,
                    scratch.values.data(), bad_values);
    }
    NumberTokens(p, bad, bad_values, tokens);
    for (size_t first = 0; first < batch.rows;) {
      const size_t rows = RowsOfBlock(first, batch.rows, kTileRows);
      if (batch.SeesSome(first, rows, p, p + kPanel)) {
        if (!stream) {
          MultiplyPanel(batch.q.data() + first * dk, rows, scratch.keys.data(), dk,
                        scratch.tile.data());
        }
        AddPanel(task, p, tokens, first, rows, pitch, scratch, part);
      }
      first += rows;
    }
  }
  part.sum.assign(batch.rows, 0.0);
  for (size_t r = 0; r < batch.rows; ++r) {
    const float* const lanes = scratch.lane_sums.data() + r * 2 * kLanes;
    for (size_t i = 0; i < kLanes; ++i) {
      part.sum[r] += static_cast<double>(lanes[i]) - lanes[kLanes + i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(OutputPitchOf);
HWY_EXPORT(CollectStatisticsImpl);

size_t OutputPitch(size_t elems) { return HWY_DYNAMIC_DISPATCH(OutputPitchOf)(elems); }

void CollectStatistics(const StatisticsTask& task, uint64_t begin, uint64_t end,
                       StatisticsScratch& scratch, PartStatistics& part) {
  HWY_DYNAMIC_DISPATCH(CollectStatisticsImpl)(task, begin, end, scratch, part);
}

namespace {

// The part that keeps out the heaviest token of a row; null when nothing is visible.
const PartStatistics* FindHeaviest(const std::vector<PartStatistics>& parts, size_t row) {
  const PartStatistics* heaviest = nullptr;
  float logit = -std::numeric_limits<float>::infinity();
  for (const PartStatistics& part : parts) {
    if (part.heaviest[row] > logit) {
      logit = part.heaviest[row];
      heaviest = &part;
    }
  }
  return heaviest;
}

void JoinRow(const std::vector<PartStatistics>& parts, size_t row, size_t pitch, double sink2,
             std::vector<double>& rest_output, RowStatistics& joined) {
  const PartStatistics* const heaviest = FindHeaviest(parts, row);
  if (heaviest == nullptr) return;
  // Everything relative to the heaviest token, whose own weight is then exactly 1.
  const double logit = heaviest->heaviest[row];
  double rest = 0;
  std::fill(rest_output.begin(), rest_output.end(), 0.0);
  for (const PartStatistics& part : parts) {
    if (part.heaviest[row] == -std::numeric_limits<float>::infinity()) continue;
    const double factor = std::exp2(part.top[row] - logit);
    const double weight = &part == heaviest ? 0 : std::exp2(part.heaviest[row] - logit);
    rest += part.sum[row] * factor + weight;
    for (size_t at = row * pitch, k = 0; k < pitch; ++k) {
      const double sum = static_cast<double>(part.output.data()[at + k]) - part.lost.data()[at + k];
      rest_output[k] += sum * factor + weight * part.heaviest_value.data()[at + k];
    }
  }
  // A sink far above every token would overflow relative to them, so the larger one is the measure.
  const double top = std::max(logit, sink2);
  const double unit = std::exp2(logit - top), sink = std::exp2(sink2 - top);
  const double others = rest * unit + sink;
  const double total = unit + others;
  joined.lse2[row] = top + std::log2(total);
  joined.rest[row] = static_cast<float>(others / total);
  // Two equal tokens have half of the weight each at most: neither may be treated on its own, or
  // they would differ.
  if (unit / total > 0.6) joined.dominant[row] = heaviest->heaviest_token[row];
  for (size_t at = row * pitch, k = 0; k < pitch; ++k) {
    const double value = heaviest->heaviest_value.data()[at + k];
    joined.output.data()[at + k] = static_cast<float>((rest_output[k] + value) * unit / total);
    joined.rest_output.data()[at + k] =
        others > 0 ? static_cast<float>(rest_output[k] * unit / others) : 0.0f;
  }
}

}  // namespace

void JoinStatistics(const std::vector<PartStatistics>& parts, size_t pitch, RowBatch& batch) {
  const size_t rows = batch.rows;
  RowStatistics& joined = batch.statistics;
  joined.lse2.assign(rows, -std::numeric_limits<double>::infinity());
  joined.rest.assign(rows, 1.0f);
  joined.dominant.assign(rows, -1);
  joined.pitch = pitch;
  std::fill_n(joined.output.Reserve(rows * pitch), rows * pitch, 0.0f);
  std::fill_n(joined.rest_output.Reserve(rows * pitch), rows * pitch, 0.0f);
  std::vector<double> rest_output(pitch);
  for (size_t row = 0; row < rows; ++row) {
    JoinRow(parts, row, pitch, batch.sink2[row], rest_output, joined);
  }
}

}  // namespace kvtriage
#endif  // HWY_ONCE
