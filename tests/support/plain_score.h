// The scores of kvtriage/kernels/score.h in float64 with plain loops: a second oracle beside the
// golden files, for inputs that no golden has. Deliberately simple and slow; shares nothing with
// the kernels but the views.
#ifndef KVTRIAGE_TESTS_SUPPORT_PLAIN_SCORE_H_
#define KVTRIAGE_TESTS_SUPPORT_PLAIN_SCORE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtriage/kernels/score.h"

namespace kvtriage {

// Attention of the newest rows of an input. Arrays are [q_heads][rows][...].
struct PlainAttention {
  uint32_t q_heads = 0, rows = 0, tokens = 0, dv = 0;
  std::vector<double> a, z;      // [tokens]; 0 where invisible
  std::vector<uint8_t> visible;  // [tokens]
  std::vector<double> o;         // [dv]; empty when V is not read and O is not given
  std::vector<double> lse;
  std::vector<uint8_t> usable;

  size_t Row(size_t head, size_t row) const { return head * rows + row; }
};

// good[kv_head * tokens + p]: the row is finite (V only counts when `reads_values`; K counts when
// `reads_keys`).
std::vector<uint8_t> PlainGoodRows(const LayerRows& layer, bool reads_keys, bool reads_values);

// Sources kQuery, kQueryOutput and kReady. `reads_values`: V hides bad rows and gives o.
PlainAttention PlainAttend(const LayerRows& layer, const AttentionInput& input, uint32_t window,
                           bool reads_values);

struct PlainScores {
  uint32_t lists = 0;
  std::vector<double> scores, mass;
  std::vector<uint32_t> usable_rows;
  uint32_t nonfinite_tokens = 0, skipped_rows = 0;
  std::optional<uint32_t>
      head_without_rows;  // the call must fail with NO_USABLE_ROW and this index
};

PlainScores PlainScore(const ScoreRequest& request);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_PLAIN_SCORE_H_
