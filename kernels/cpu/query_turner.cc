#include "kernels/cpu/query_turner.h"

namespace kvtriage {

QueryTurner::QueryTurner(const QueryRotation& rotation) : rotation_(rotation) {
  if (rotation.rope == nullptr) return;
  cosines_.resize(rotation.rope->rotary_dim / 2);
  sines_.resize(cosines_.size());
}

void QueryTurner::Turn(size_t row, float* q) {
  if (rotation_.rope == nullptr) return;
  const Rope& rope = *rotation_.rope;
  if (row_ != row) {
    TurnBetween(rope, AngleMode::kExact, AtPosition(0), rotation_.At(row), cosines_, sines_);
    row_ = row;
  }
  TurnRow(rope, cosines_, sines_, q);
  if (rope.attention_factor == 1) return;
  const auto factor = static_cast<float>(rope.attention_factor);
  for (uint32_t k = rope.offset; k < rope.offset + rope.rotary_dim; ++k) q[k] *= factor;
}

}  // namespace kvtriage
