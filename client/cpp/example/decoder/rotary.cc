#include "client/cpp/example/decoder/rotary.h"

#include <cmath>

#include "kernels/core/rope_speeds.h"

namespace kvtriage::decoder {

Rotary::Rotary(double theta, uint32_t head_size)
    : speeds_(RopeSpeeds(RopeTheta{.theta = theta}, head_size)) {}

void Rotary::Turn(std::span<float> rows, std::span<const int32_t> positions) const {
  const size_t pairs = speeds_.size();
  for (size_t r = 0; r < positions.size(); ++r) {
    const std::span<float> row =
        rows.subspan(rows.size() / positions.size() * r, rows.size() / positions.size());
    for (size_t j = 0; j < pairs; ++j) {
      const double angle = positions[r] * speeds_[j];
      const auto cosine = static_cast<float>(std::cos(angle));
      const auto sine = static_cast<float>(std::sin(angle));
      for (size_t head = 0; head < row.size(); head += 2 * pairs) {
        float& a = row[head + j];
        float& b = row[head + j + pairs];
        const float turned = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = turned;
      }
    }
  }
}

}  // namespace kvtriage::decoder
