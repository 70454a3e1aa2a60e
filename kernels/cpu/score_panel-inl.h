// All rows of a batch against one panel of tokens.

#if defined(KVTRIAGE_KERNELS_CPU_SCORE_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_SCORE_PANEL_INL_H_
#undef KVTRIAGE_KERNELS_CPU_SCORE_PANEL_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_SCORE_PANEL_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/cpu/bend-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/score_terms-inl.h"
#include "kernels/cpu/score_tokens.h"
#include "kernels/cpu/score_votes-inl.h"
#include "kernels/cpu/stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

template <Term kTerm>
class PanelScorer {
 public:
  PanelScorer(const ScoreTask& task, ScoreScratch& scratch)
      : task_(task),
        input_(task.request.input),
        batch_(task.rows),
        dk_(task.request.layer.k.layout.row_elems),
        dv_(task.request.layer.v.layout.row_elems),
        group_(task.request.layer.q_heads / task.request.layer.k.layout.heads),
        given_(input_.source == AttentionSource::kReady),
        reads_values_(ReadsValues(task.request.spec.scorer)),
        keys_stream_(!given_ && FitsOneBlock(batch_.rows) &&
                     CanStream(task.request.layer.k.layout)),
        values_stream_(reads_values_ && CanStream(task.request.layer.v.layout) &&
                       (!UsesOutputs(kTerm) || FitsOneBlock(batch_.votes()))),
        votes_(task) {
    pack_ = scratch.pack.Reserve(PackScratchFloats(std::max(dk_, reads_values_ ? dv_ : 0)));
    keys_ = scratch.keys.Reserve(given_ ? 0 : PanelFloats(dk_));
    values_ = scratch.values.Reserve(reads_values_ ? PanelFloats(dv_) : 0);
    logits_ = scratch.tiles.Reserve(3 * kTileFloats);
    dots_ = logits_ + kTileFloats;
    bent_z_ = dots_ + kTileFloats;
    votes_.SetKeys(keys_, logits_);
  }

  // Tokens [p, p + count); count < kPanel only at the end of the sequence.
  void Score(uint64_t p, size_t count) {
    begin_ = p;
    count_ = count;
    Pack();
    const TokenRange tokens = TokensOf(task_.request.layer.v);
    panel_values_ = {&tokens, pack_, values_, !values_stream_};
    LoadSums();
    segment_ = 0;
    CloseSegments(0);
    if (given_ || batch_.rows_per_vote > 1) {
      AddVotes();
    } else {
      AddBlocks();
    }
    StoreSums();
  }

 private:
  static bool FitsOneBlock(size_t rows) { return rows > 0 && rows <= kTileRows; }

  TokenRange TokensOf(const KvView& view) const {
    return {view, task_.request.layer.sequence, task_.kv_head, begin_, count_};
  }

  void Pack() {
    std::fill_n(bad_keys_, kPanel, 0.0f);
    std::fill_n(bad_values_, kPanel, 0.0f);
    const TokenRange keys = TokensOf(task_.request.layer.k);
    if (keys_stream_) {
      StreamProducts<Norm::kNone>(keys, batch_.q.data(), batch_.rows, pack_, logits_, bad_keys_,
                                  bad_keys_);
    } else if (!given_) {
      PackPanel<Norm::kNone>(keys, pack_, keys_, bad_keys_, bad_keys_);
    }
    if (reads_values_) PackValues(TokensOf(task_.request.layer.v));
    all_good_ = NumberTokens(begin_, bad_keys_, bad_values_, tokens_);
  }

  void PackValues(const TokenRange& tokens) {
    constexpr Norm kNorm = kTerm == Term::kMass ? Norm::kMagnitudes : Norm::kSquares;
    if (!values_stream_) {
      PackPanel<kNorm>(tokens, pack_, values_, bad_values_, value_norm_);
    } else if constexpr (UsesOutputs(kTerm)) {
      StreamProducts<kNorm>(tokens, batch_.o.data(), batch_.votes(), pack_, dots_, bad_values_,
                            value_norm_);
    } else {
      StreamNorms<kNorm>(tokens, pack_, bad_values_, value_norm_);
    }
  }

  void LoadSums() {
    std::fill_n(sums_.segment, kPanel, 0.0f);
    std::fill_n(sums_.score, kPanel, 0.0f);
    std::fill_n(sums_.mass, kPanel, 0.0f);
    if (task_.first_batch) return;
    std::copy_n(task_.carry + begin_, count_, sums_.segment);
    std::copy_n(task_.scores + begin_, count_, sums_.score);
    std::copy_n(task_.mass + begin_, count_, sums_.mass);
  }

  void StoreSums() {
    if (task_.last_batch) {
      const bool mean = task_.request.spec.reduce == Reduce::kMean;
      for (size_t t = 0; t < count_; ++t) {
        const bool bad = bad_keys_[t] + bad_values_[t] != 0.0f;
        if (mean) sums_.score[t] /= static_cast<float>(group_);
        if (bad) sums_.score[t] = std::numeric_limits<float>::quiet_NaN();
        // With PRE the sum was one of means.
        sums_.mass[t] *= static_cast<float>(batch_.rows_per_vote);
      }
    } else {
      std::copy_n(sums_.segment, count_, task_.carry + begin_);
    }
    std::copy_n(sums_.score, count_, task_.scores + begin_);
    std::copy_n(sums_.mass, count_, task_.mass + begin_);
  }

  // Reduces the query heads whose last vote is number `votes`.
  void CloseSegments(size_t votes) {
    for (; segment_ < batch_.segments.size() && batch_.segments[segment_].end == votes;
         ++segment_) {
      if (batch_.segments[segment_].complete) CloseSegment();
    }
  }

  HWY_INLINE void CloseSegment() {
    const D d;
    const bool largest = task_.request.spec.reduce == Reduce::kMax;
    const bool weighed = kTerm == Term::kValue || task_.request.spec.scorer == Scorer::kVatp;
    for (size_t t = 0; t < kPanel; t += kLanes) {
      V sum = hn::Load(d, sums_.segment + t);
      if constexpr (kTerm == Term::kMass) {
        hn::Store(hn::Add(hn::Load(d, sums_.mass + t), sum), d, sums_.mass + t);
      }
      if (weighed) sum = hn::Mul(sum, hn::Load(d, value_norm_ + t));
      const V score = hn::Load(d, sums_.score + t);
      hn::Store(largest ? hn::Max(score, sum) : hn::Add(score, sum), d, sums_.score + t);
      hn::Store(hn::Zero(d), d, sums_.segment + t);
    }
  }

  // Everything of `terms` that does not depend on the block.
  BlockTerms PanelTerms() {
    BlockTerms terms{};
    terms.logits = logits_;
    terms.dots = dots_;
    terms.begin = begin_;
    terms.tokens = tokens_;
    terms.value_square = value_norm_;
    terms.values = &panel_values_;
    terms.value_elems = dv_;
    terms.scale = input_.scale;
    terms.scale2 = task_.rule.bent_scale2();
    terms.scale2_low = task_.rule.bent_scale2_low();
    terms.bent_z = bent_z_;
    const bool given_lse = input_.source == AttentionSource::kQueryOutput;
    terms.given_rule = given_lse && !task_.rule.plain ? &task_.rule : nullptr;
    return terms;
  }

  void AddBlocks() {
    BlockTerms terms = PanelTerms();
    for (size_t first = 0; first < batch_.rows; first += terms.rows) {
      terms.rows = RowsOfBlock(first, batch_.rows, kTileRows);
      terms.first = batch_.first.data() + first;
      terms.limit = batch_.limit.data() + first;
      terms.slope2 = batch_.slope2.data() + first;
      const uint64_t end = begin_ + kPanel;
      const bool sees_some = batch_.SeesSome(first, terms.rows, begin_, end);
      const bool sees_all = all_good_ && batch_.SeesAll(first, terms.rows, begin_, end);
      if (sees_some) {
        if (!keys_stream_) {
          MultiplyPanel(batch_.q.data() + first * dk_, terms.rows, keys_, dk_, logits_);
        }
        if (!task_.rule.plain) BendBlock(first, terms.rows);
        SetVotes(first, terms);
      }
      ForEachPiece(first, terms.rows, [&](size_t from, size_t to) HWY_ATTR {
        if (!sees_some) return;
        if (!task_.rule.plain) {
          AddRows<kTerm, true, true>(terms, from, to, sums_);
        } else if (sees_all) {
          AddRows<kTerm, false, false>(terms, from, to, sums_);
        } else {
          AddRows<kTerm, true, false>(terms, from, to, sums_);
        }
      });
    }
  }

  void BendBlock(size_t first, size_t rows) {
    if constexpr (kTerm == Term::kDrop) std::copy_n(logits_, rows * kPanel, bent_z_);
    for (size_t r = 0; r < rows; ++r) {
      BendRow(task_.rule, begin_, batch_.limit[first + r] - 1, batch_.slope2[first + r],
              logits_ + r * kPanel, UsesLogits(kTerm) ? bent_z_ + r * kPanel : nullptr);
    }
  }

  // Points `terms` at votes from number `first` on, and multiplies their outputs.
  void SetVotes(size_t first, BlockTerms& terms) {
    terms.lse2 = batch_.lse2.data() + first;
    terms.lse2_low = batch_.lse2_low.data() + first;
    terms.output_square = batch_.output_square.data() + first;
    terms.drop_weight = batch_.drop_weight.data() + first;
    const RowStatistics& statistics = batch_.statistics;
    terms.dominant = statistics.dominant.data() + first;
    if (statistics.pitch != 0) {  // else no row has a dominant token
      terms.rest = statistics.rest.data() + first;
      terms.rest_output = statistics.rest_output.data() + first * statistics.pitch;
      terms.rest_pitch = statistics.pitch;
    }
    if constexpr (UsesOutputs(kTerm)) {
      terms.output_block = batch_.o.data() + first * dv_;
      if (!values_stream_) MultiplyPanel(terms.output_block, terms.rows, values_, dv_, dots_);
    }
  }

  // Calls add(from, to) for the parts of a block that belong to one query head each.
  template <class Add>
  HWY_INLINE void ForEachPiece(size_t first, size_t rows, const Add& add) {
    for (size_t done = first; done < first + rows;) {
      const size_t end = std::min(first + rows, batch_.segments[segment_].end);
      add(done - first, end - first);
      done = end;
      CloseSegments(done);
    }
  }

  // Votes whose weights and logits are given, or averaged over the rows of a group.
  void AddVotes() {
    votes_.Begin(begin_, count_, tokens_, keys_stream_);
    size_t row = 0;
    for (size_t first = 0, rows = 0; first < batch_.votes(); first += rows) {
      rows = RowsOfBlock(first, batch_.votes(), kTileRows);
      votes_.Clear(rows);
      for (; row < (first + rows) * batch_.rows_per_vote; ++row) {
        votes_.Add(row, row / batch_.rows_per_vote - first);
      }
      AddVoteBlock(first, rows);
    }
  }

  void AddVoteBlock(size_t first, size_t rows) {
    BlockTerms terms = PanelTerms();
    int32_t first_seen[kTileRows], limit[kTileRows];
    for (size_t r = 0; r < rows; ++r) {
      first_seen[r] = batch_.first[(first + r) * batch_.rows_per_vote];
      limit[r] = batch_.limit[(first + r) * batch_.rows_per_vote];
    }
    terms.rows = rows;
    terms.first = first_seen;
    terms.limit = limit;
    terms.weights = votes_.weights();
    terms.logits = votes_.logits();
    SetVotes(first, terms);
    ForEachPiece(first, rows, [&](size_t from, size_t to) HWY_ATTR {
      AddGivenRows<kTerm>(terms, from, to, sums_);
    });
  }

  const ScoreTask& task_;
  const AttentionInput& input_;
  const RowBatch& batch_;
  const size_t dk_, dv_, group_;
  const bool given_, reads_values_;
  // Whether keys and values are multiplied as they are read (stream-inl.h).
  const bool keys_stream_, values_stream_;
  PanelValues panel_values_{};
  float *pack_, *keys_, *values_, *logits_, *dots_, *bent_z_;
  VoteRows<kTerm> votes_;
  uint64_t begin_ = 0;
  size_t count_ = 0, segment_ = 0;
  bool all_good_ = false;
  HWY_ALIGN float bad_keys_[kPanel];
  HWY_ALIGN float bad_values_[kPanel];
  HWY_ALIGN float value_norm_[kPanel];
  HWY_ALIGN int32_t tokens_[kPanel];
  PanelSums sums_;
};

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
