// Weights and logits of votes that do not come straight from products: ready-made ones, and means
// over the rows of a group (PRE).

#if defined(KVTRIAGE_KERNELS_CPU_SCORE_VOTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_SCORE_VOTES_INL_H_
#undef KVTRIAGE_KERNELS_CPU_SCORE_VOTES_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_SCORE_VOTES_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/bend-inl.h"
#include "kernels/cpu/product-inl.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/score_terms-inl.h"
#include "kernels/cpu/score_tokens.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

constexpr size_t kTileFloats = kTileRows * kPanel;

template <Term kTerm>
class VoteRows {
 public:
  explicit VoteRows(const ScoreTask& task)
      : task_(task),
        input_(task.request.input),
        batch_(task.rows),
        dk_(task.request.layer.k.layout.row_elems),
        given_(input_.source == AttentionSource::kReady) {}

  // Where the packed keys of a panel lie, and a tile for their products.
  void SetKeys(const float* keys, float* products) {
    keys_ = keys;
    products_ = products;
  }

  // Starts a panel; with `multiplied` the tile of products already holds those of the only block.
  void Begin(uint64_t begin, size_t count, const int32_t* tokens, bool multiplied) {
    begin_ = begin;
    count_ = count;
    tokens_ = tokens;
    product_first_ = multiplied ? 0 : kNoBlock;
  }

  // [rows][kPanel]: the votes added since Clear, 0 where nothing is visible.
  const float* weights() const { return weights_; }
  const float* logits() const { return logits_; }

  void Clear(size_t rows) {
    std::fill_n(weights_, rows * kPanel, 0.0f);
    std::fill_n(logits_, rows * kPanel, 0.0f);
  }

  // Adds one query row's share to the vote in `slot`. Rows come in ascending order.
  void Add(size_t row, size_t slot) {
    const D d;
    const int32_t limit = batch_.limit[row];
    if (static_cast<uint64_t>(limit) <= begin_) return;
    if (batch_.first[row] >= static_cast<int64_t>(begin_ + count_)) return;
    const float* const products = given_ ? ReadGiven(row) : RowProducts(row);
    const bool bent = !given_ && !task_.rule.plain;
    if (bent) {
      std::copy_n(products, kPanel, row_weights_);
      BendRow(task_.rule, begin_, limit - 1, batch_.slope2[row], row_weights_, row_logits_);
    }
    const V share = hn::Set(d, 1.0f / static_cast<float>(batch_.rows_per_vote));
    for (size_t t = 0; t < kPanel; t += kLanes) {
      V weight, z;
      if (given_) {
        weight = hn::Load(d, row_weights_ + t);
        z = hn::Load(d, products + t);
      } else if (bent) {
        weight = Exp2(hn::Sub(hn::Load(d, row_weights_ + t), hn::Set(d, batch_.lse2[row])));
        z = hn::Load(d, row_logits_ + t);
      } else {
        const V product = hn::Load(d, products + t);
        weight =
            Exp2(hn::MulSub(product, hn::Set(d, task_.rule.scale2), hn::Set(d, batch_.lse2[row])));
        z = hn::Mul(product, hn::Set(d, input_.scale));
      }
      const auto visible = Visible(tokens_ + t, batch_.first[row], limit);
      weight = hn::Mul(hn::IfThenElseZero(visible, weight), share);
      z = hn::Mul(hn::IfThenElseZero(visible, z), share);
      float* const weights = weights_ + slot * kPanel + t;
      float* const logits = logits_ + slot * kPanel + t;
      hn::Store(hn::Add(hn::Load(d, weights), weight), d, weights);
      hn::Store(hn::Add(hn::Load(d, logits), z), d, logits);
    }
  }

 private:
  static constexpr size_t kNoBlock = ~size_t{0};

  // Reads A (and Z where it matters) of one row up to its limit.
  const float* ReadGiven(size_t row) {
    const size_t seen =
        std::min<uint64_t>(count_, static_cast<uint64_t>(batch_.limit[row]) - begin_);
    const auto read = [&](const TensorView& tensor, float* out) HWY_ATTR {
      WidenStrided(tensor.At(batch_.tensor_row[row], batch_.query_head[row], begin_),
                   tensor.elem_stride, tensor.dtype, seen, out);
      std::fill(out + seen, out + kPanel, 0.0f);
    };
    read(input_.a, row_weights_);
    if constexpr (kTerm == Term::kKey || kTerm == Term::kJoint) {
      read(input_.z, row_logits_);
    } else {
      std::fill_n(row_logits_, kPanel, 0.0f);
    }
    return row_logits_;
  }

  // Products of one query row with the keys, computed when its block is first met.
  const float* RowProducts(size_t row) {
    const size_t first = row / kTileRows * kTileRows;
    if (product_first_ != first) {
      MultiplyPanel(batch_.q.data() + first * dk_, RowsOfBlock(first, batch_.rows, kTileRows),
                    keys_, dk_, products_);
      product_first_ = first;
    }
    return products_ + (row - first) * kPanel;
  }

  const ScoreTask& task_;
  const AttentionInput& input_;
  const RowBatch& batch_;
  const size_t dk_;
  const bool given_;
  const float* keys_ = nullptr;
  float* products_ = nullptr;
  uint64_t begin_ = 0;
  size_t count_ = 0, product_first_ = kNoBlock;
  const int32_t* tokens_ = nullptr;
  HWY_ALIGN float weights_[kTileFloats];
  HWY_ALIGN float logits_[kTileFloats];
  HWY_ALIGN float row_weights_[kPanel];
  HWY_ALIGN float row_logits_[kPanel];
};

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
