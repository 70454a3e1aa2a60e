// Rotary position embedding in half-split pairs: channel j of a head turns with channel j + d/2.
#ifndef KVTRIAGE_DECODER_ROTARY_H_
#define KVTRIAGE_DECODER_ROTARY_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvtriage::decoder {

class Rotary {
 public:
  Rotary(double theta, uint32_t head_size);

  // Turns every head of every row: rows.size() is positions.size() * heads * head_size. Angles are
  // position * theta^(-2j/d) in float64 (what the service calls exact), their cosine and sine are
  // rounded to float32 once.
  void Turn(std::span<float> rows, std::span<const int32_t> positions) const;

 private:
  std::vector<double> speeds_;  // radians a position, per pair
};

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_ROTARY_H_
