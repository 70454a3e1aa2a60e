#include "kernels/core/average_turn.h"

#include <cmath>

namespace kvtriage {

AverageTurn::AverageTurn(const Rope* rope, uint64_t first, uint32_t count) : rope_(rope) {
  if (rope == nullptr) return;
  for (const double speed : rope->speeds) {
    double cosine = 0, sine = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const double angle = static_cast<double>(first + i) * speed;
      cosine += std::cos(angle);
      sine += std::sin(angle);
    }
    cosines_.push_back(rope->attention_factor * cosine / count);
    sines_.push_back(rope->attention_factor * sine / count);
  }
}

void AverageTurn::Apply(double* x, size_t step) const {
  for (size_t j = 0; j < cosines_.size(); ++j) {
    const bool half = rope_->pairing == RopePairing::kHalf;
    const size_t first = rope_->offset + (half ? j : 2 * j);
    const size_t second = first + (half ? rope_->rotary_dim / 2 : 1);
    double &a = x[first * step], &b = x[second * step];
    const double turned = a * cosines_[j] - b * sines_[j];
    b = b * cosines_[j] + a * sines_[j];
    a = turned;
  }
}

void AverageTurn::ApplyBothSides(std::vector<double>& m, size_t size) const {
  for (size_t column = 0; column < size; ++column) Apply(m.data() + column, size);
  for (size_t row = 0; row < size; ++row) Apply(m.data() + row * size, 1);
}

}  // namespace kvtriage
