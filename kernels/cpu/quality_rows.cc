#include "kernels/cpu/quality_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quality_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/bend-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/visible-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

class RowMeter {
 public:
  RowMeter(const QualityTask& task, QualityScratch& scratch)
      : request_(task.request),
        input_(task.request.input),
        kept_(task.request.kept[task.kv_head]),
        head_(task.kv_head),
        tokens_(task.request.layer.sequence.rows),
        dk_(task.request.layer.k.layout.row_elems),
        dv_(task.request.layer.v.layout.row_elems),
        pitch_((dv_ + kLanes - 1) / kLanes * kLanes),
        ready_(input_.source == AttentionSource::kReady),
        given_(input_.source == AttentionSource::kQueryOutput),
        rule_(LogitRuleOf(input_)),
        scale2_(rule_.bent_scale2()),
        s_(scratch),
        rows_(scratch.rows) {}

  void Run(RowQuality* out) {
    if (rows_.size() == 0) return;
    Reserve();
    if (!ready_ && !given_) FindStatistics();
    SetReferences();
    AddTokens();
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (seen_[r] != 0) Finish(r, out[rows_.number[r]]);
    }
  }

 private:
  void Reserve() {
    const size_t rows = rows_.size();
    if (!ready_) {
      PackRowBlocks(rows_.q.data(), rows, dk_, dk_, kTileRows, s_.q_blocks.Reserve(rows * dk_));
      s_.pack.Reserve(PackScratchFloats(dk_));
      s_.keys.Reserve(PanelFloats(dk_));
    }
    s_.values.Reserve(kPanel * pitch_);
    s_.tile.Reserve(kTileRows * kPanel);
    s_.kept_tile.Reserve(kTileRows * kPanel);
    for (AlignedFloats* sums : {&s_.kept_sums, &s_.kept_lost, &s_.rest_sums, &s_.rest_lost}) {
      std::fill_n(sums->Reserve(rows * pitch_), rows * pitch_, 0.0f);
    }
    top_.assign(rows, kUnseen);
    sum_.assign(rows, 0.0);
    mass_.assign(rows, 0.0);
    total_.assign(rows, 0.0);
    seen_.assign(rows, 0);
  }

  // Reads the next panel of tokens; true when a V row of it was packed.
  void LoadPanel(uint64_t begin) {
    count_ = std::min<uint64_t>(kPanel, tokens_ - begin);
    const LayerRows& layer = request_.layer;
    std::fill_n(bad_keys_, kPanel, 0.0f);
    if (!ready_) {
      PackPanel<Norm::kNone>({layer.k, layer.sequence, head_, begin, count_}, s_.pack.data(),
                             s_.keys.data(), bad_keys_, bad_keys_);
    }
    PackValueRows({layer.v, layer.sequence, head_, begin, count_}, pitch_, s_.values.data(),
                  bad_values_);
    NumberTokens(begin, bad_keys_, bad_values_, tokens_of_);
  }

  template <class Block>
  void ForEachPanelBlock(Block block) {
    for (uint64_t p = 0; p < tokens_; p += kPanel) {
      LoadPanel(p);
      for (size_t first = 0; first < rows_.size();) {
        const size_t rows = RowsOfBlock(first, rows_.size(), kTileRows);
        const int32_t* const limit = rows_.limit.data() + first;
        const int32_t* const seen = rows_.first.data() + first;
        if (static_cast<uint64_t>(*std::max_element(limit, limit + rows)) > p &&
            static_cast<uint64_t>(*std::min_element(seen, seen + rows)) < p + kPanel) {
          block(p, first, rows);
        }
        first += rows;
      }
    }
  }

  // Products of a block of rows: logits once they are multiplied with scale2_.
  void Products(uint64_t begin, size_t first, size_t rows) {
    MultiplyPanel(s_.q_blocks.data() + first * dk_, rows, s_.keys.data(), dk_, s_.tile.data());
    for (size_t r = 0; r < rows && !rule_.plain; ++r) {
      BendRow(rule_, begin, rows_.limit[first + r] - 1, rows_.slope2[first + r],
              s_.tile.data() + r * kPanel, nullptr);
    }
  }

  // First pass when only queries are given: top and sum of every row, tops wandering upwards.
  void FindStatistics() {
    ForEachPanelBlock([this](uint64_t p, size_t first, size_t rows) {
      Products(p, first, rows);
      for (size_t r = 0; r < rows; ++r) AddStatistics(first + r, s_.tile.data() + r * kPanel);
    });
  }

  void AddStatistics(size_t row, const float* products) {
    const D d;
    const V scale = hn::Set(d, scale2_);
    V logits[kPanelVectors];
    V most = hn::Set(d, kUnseen);
    for (size_t v = 0; v < kPanelVectors; ++v) {
      const auto visible = Visible(tokens_of_ + v * kLanes, rows_.first[row], rows_.limit[row]);
      logits[v] = hn::IfThenElse(visible, hn::Mul(hn::Load(d, products + v * kLanes), scale),
                                 hn::Set(d, kUnseen));
      most = hn::Max(most, logits[v]);
    }
    const float top = hn::GetLane(hn::MaxOfLanes(d, most));
    if (top == kUnseen) return;
    if (top > top_[row]) {
      sum_[row] *= std::exp2(static_cast<double>(top_[row]) - top);
      top_[row] = top;
    }
    V sum = hn::Zero(d);
    const V reference = hn::Set(d, top_[row]);
    for (size_t v = 0; v < kPanelVectors; ++v) {
      const V weight = Exp2(hn::Sub(logits[v], reference));
      sum = hn::Add(sum, hn::IfThenElseZero(hn::Gt(logits[v], hn::Set(d, kUnseen)), weight));
    }
    sum_[row] += hn::GetLane(hn::SumOfLanes(d, sum));
  }

  // What logits are weighed against: 2^(logit - high - low) is the weight.
  void SetReferences() {
    high_.resize(rows_.size());
    low_.resize(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r) {
      const double lse2 =
          given_ ? rows_.lse2[r] : WithSink(top_[r] + std::log2(sum_[r]), rows_.sink2[r]);
      high_[r] = static_cast<float>(lse2);
      low_[r] = static_cast<float>(lse2 - high_[r]);
    }
  }

  // Second pass: weights, split into kept and other tokens.
  void AddTokens() {
    size_t next_kept = 0;
    uint64_t marked = std::numeric_limits<uint64_t>::max();
    ForEachPanelBlock([&](uint64_t p, size_t first, size_t rows) {
      if (marked != p) MarkKept(marked = p, next_kept);
      if (ready_) {
        LoadWeights(p, first, rows);
      } else {
        Products(p, first, rows);
      }
      for (size_t r = 0; r < rows; ++r) SplitWeights(first + r, r);
      const size_t vectors = pitch_ / kLanes, at = first * pitch_;
      if (some_kept_) {
        AddValues(s_.kept_tile.data(), rows, s_.values.data(), vectors, s_.kept_sums.data() + at,
                  s_.kept_lost.data() + at);
      }
      if (some_dropped_ && !given_) {
        AddValues(s_.tile.data(), rows, s_.values.data(), vectors, s_.rest_sums.data() + at,
                  s_.rest_lost.data() + at);
      }
    });
  }

  // kept_lanes_ = 1 for kept tokens of the panel, else 0. Panels come in ascending order.
  void MarkKept(uint64_t begin, size_t& next) {
    std::fill_n(kept_lanes_, kPanel, 0.0f);
    while (next < kept_.size() && static_cast<uint64_t>(kept_[next]) < begin) ++next;
    size_t kept = 0;
    for (; next < kept_.size() && static_cast<uint64_t>(kept_[next]) < begin + count_; ++next) {
      kept_lanes_[static_cast<uint64_t>(kept_[next]) - begin] = 1.0f;
      ++kept;
    }
    some_kept_ = kept > 0;
    some_dropped_ = kept < count_;
  }

  void LoadWeights(uint64_t begin, size_t first, size_t rows) {
    for (size_t r = 0; r < rows; ++r) {
      const std::byte* from = input_.a.At(rows_.row[first + r], rows_.head[first + r], begin);
      WidenStrided(from, input_.a.elem_stride, input_.a.dtype, count_, s_.tile.data() + r * kPanel);
      std::fill_n(s_.tile.data() + r * kPanel + count_, kPanel - count_, 0.0f);
    }
  }

  // Turns row r of the tile into the weights of dropped tokens, and those of kept ones beside it.
  void SplitWeights(size_t row, size_t r) {
    const D d;
    float* const tile = s_.tile.data() + r * kPanel;
    float* const kept_tile = s_.kept_tile.data() + r * kPanel;
    V total = hn::Zero(d), mass = hn::Zero(d);
    bool seen = seen_[row] != 0;
    for (size_t v = 0; v < kPanel; v += kLanes) {
      const auto visible = Visible(tokens_of_ + v, rows_.first[row], rows_.limit[row]);
      seen = seen || !hn::AllFalse(d, visible);
      V weight = hn::Load(d, tile + v);
      if (!ready_) {
        const V logit = hn::MulSub(weight, hn::Set(d, scale2_), hn::Set(d, high_[row]));
        weight = Exp2(hn::Sub(logit, hn::Set(d, low_[row])));
      }
      weight = hn::IfThenElseZero(visible, weight);
      const V kept = hn::Mul(weight, hn::Load(d, kept_lanes_ + v));
      total = hn::Add(total, weight);
      mass = hn::Add(mass, kept);
      hn::Store(kept, d, kept_tile + v);
      hn::Store(hn::Sub(weight, kept), d, tile + v);
    }
    seen_[row] = seen ? 1 : 0;
    total_[row] += hn::GetLane(hn::SumOfLanes(d, total));
    mass_[row] += hn::GetLane(hn::SumOfLanes(d, mass));
  }

  // What a declared learned sink holds of a row.
  double SinkShare(size_t r) const {
    if (!input_.sink_logits) return 0;
    if (ready_) return std::max(0.0, 1 - total_[r]);
    return std::exp2(rows_.sink2[r] - high_[r] - low_[r]);
  }

  void Finish(size_t r, RowQuality& out) const {
    out.total = total_[r];
    if (!std::isfinite(total_[r])) return;
    out.usable = true;
    out.mass = mass_[r];
    const double sink = SinkShare(r);
    for (size_t k = 0; k < dv_; ++k) {
      const size_t at = r * pitch_ + k;
      const double kept = static_cast<double>(s_.kept_sums.data()[at]) - s_.kept_lost.data()[at];
      const double rest = static_cast<double>(s_.rest_sums.data()[at]) - s_.rest_lost.data()[at];
      const double estimate = mass_[r] > 0 ? kept / (mass_[r] + sink) : 0;
      const double truth = given_ ? static_cast<double>(rows_.o[r * dv_ + k]) : kept + rest;
      out.error_square += (estimate - truth) * (estimate - truth);
      out.output_square += truth * truth;
    }
  }

  const QualityRequest& request_;
  const AttentionInput& input_;
  const std::span<const int32_t> kept_;
  const uint32_t head_;
  const uint64_t tokens_;
  const size_t dk_, dv_, pitch_;
  const bool ready_, given_;
  const LogitRule rule_;
  const float scale2_;
  QualityScratch& s_;
  const QualityRows& rows_;
  std::vector<float> top_, high_, low_;
  std::vector<double> sum_, mass_, total_;
  std::vector<uint8_t> seen_;
  size_t count_ = 0;  // tokens of the panel
  bool some_kept_ = false, some_dropped_ = false;
  HWY_ALIGN float bad_keys_[kPanel], bad_values_[kPanel], kept_lanes_[kPanel];
  HWY_ALIGN int32_t tokens_of_[kPanel];
};

void MeasureRowsImpl(const QualityTask& task, QualityScratch& scratch, RowQuality* out) {
  RowMeter(task, scratch).Run(out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvtriage {

HWY_EXPORT(MeasureRowsImpl);

void MeasureRows(const QualityTask& task, QualityScratch& scratch, RowQuality* out) {
  std::fill_n(out, task.end - task.begin, RowQuality());
  GatherQualityRows(task, scratch.rows);
  HWY_DYNAMIC_DISPATCH(MeasureRowsImpl)(task, scratch, out);
}

}  // namespace kvtriage
#endif  // HWY_ONCE
