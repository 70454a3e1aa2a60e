// A block of votes against a panel of tokens: what the terms of a score read and add to.

#if defined(KVTRIAGE_KERNELS_CPU_SCORE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVTRIAGE_KERNELS_CPU_SCORE_BLOCK_INL_H_
#undef KVTRIAGE_KERNELS_CPU_SCORE_BLOCK_INL_H_
#else
#define KVTRIAGE_KERNELS_CPU_SCORE_BLOCK_INL_H_
#endif

#include "kernels/core/logit_rule.h"
#include "kernels/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvtriage {
namespace HWY_NAMESPACE {

// kMass stands for the plain sum of weights, kValue for the sum of their squares (times |v|^2
// later).
enum class Term : uint8_t { kMass, kValue, kKey, kJoint, kDrop };

constexpr bool UsesOutputs(Term term) { return term >= Term::kKey; }
// Whether z takes part in a term.
constexpr bool UsesLogits(Term term) { return term == Term::kKey || term == Term::kJoint; }

// The values of a panel, [dv][kPanel]: packed in advance, or when they are first asked for.
struct PanelValues {
  const TokenRange* tokens;
  float *scratch, *panel;
  bool packed;

  const float* Get() {
    if (!packed) {
      HWY_ALIGN float bad[kPanel];
      PackPanel<Norm::kNone>(*tokens, scratch, panel, bad, bad);
      packed = true;
    }
    return panel;
  }
};

// A block of votes against a panel. Arrays of [rows][kPanel] lie in tiles; pointers per row point
// at the block's first one.
struct BlockTerms {
  const float* logits;   // products q.k, or z when weights are given
  const float* weights;  // A, or null: computed from the products
  // Where logits are bent products (bend-inl.h): z, or the products themselves for kDrop when the
  // log-sum-exps are given; `given_rule` is null unless they are.
  const float* bent_z;
  const LogitRule* given_rule;
  const float* slope2;
  const float* dots;  // v.o
  const float* lse2;
  const float* lse2_low;
  const int32_t *first, *limit;
  const float* output_square;
  const float* drop_weight;
  const float* output_block;  // [dv][rows]
  size_t rows;
  // Per row: the token that is treated apart (-1: none), 1 - A of it, and the output without it,
  // rows rest_pitch apart.
  const int32_t* dominant;
  const float* rest;
  const float* rest_output;
  size_t rest_pitch;
  // The panel.
  uint64_t begin;
  const int32_t* tokens;
  const float* value_square;
  PanelValues* values;
  size_t value_elems;
  float scale, scale2, scale2_low;
};

// Running sums of a panel, [kPanel] each.
struct PanelSums {
  HWY_ALIGN float segment[kPanel];  // of the query head in work
  HWY_ALIGN float score[kPanel];    // reduced over the finished query heads
  HWY_ALIGN float mass[kPanel];
};

}  // namespace HWY_NAMESPACE
}  // namespace kvtriage
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
