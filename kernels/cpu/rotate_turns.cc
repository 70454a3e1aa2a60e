#include <cmath>

#include "kvtriage/kernels/rotate.h"

namespace kvtriage {
namespace {

double Angle(AngleMode mode, double speed, int64_t from, int64_t to) {
  if (mode == AngleMode::kExact) return static_cast<double>(to - from) * speed;
  const float table_speed = static_cast<float>(speed);
  const float table_to = static_cast<float>(to) * table_speed;
  const float table_from = static_cast<float>(from) * table_speed;
  return static_cast<double>(table_to) - static_cast<double>(table_from);
}

}  // namespace

void TurnBetween(const Rope& rope, AngleMode mode, const RowPosition& from, const RowPosition& to,
                 std::span<float> cosines, std::span<float> sines) {
  uint32_t plane = 0, section_end = rope.multi_plane() ? rope.sections[0] : rope.rotary_dim / 2;
  for (uint32_t j = 0; j < rope.rotary_dim / 2; ++j) {
    while (j >= section_end) section_end += rope.sections[++plane];
    const double angle = Angle(mode, rope.speeds[j], from[plane], to[plane]);
    cosines[j] = static_cast<float>(std::cos(angle));
    sines[j] = static_cast<float>(std::sin(angle));
  }
}

void TurnRow(const Rope& rope, std::span<const float> cosines, std::span<const float> sines,
             float* row) {
  const uint32_t pairs = rope.rotary_dim / 2;
  const bool half = rope.pairing == RopePairing::kHalf;
  float* const first = row + rope.offset;
  for (uint32_t j = 0; j < pairs; ++j) {
    float& a = first[half ? j : 2 * j];
    float& b = first[half ? j + pairs : 2 * j + 1];
    const float turned = a * cosines[j] - b * sines[j];
    b = b * cosines[j] + a * sines[j];
    a = turned;
  }
}

}  // namespace kvtriage
