#include "client/cpp/example/decoder/weights_random.h"

#include <cmath>

#include "kernels/core/splitmix64.h"

namespace kvtriage::decoder {
namespace {

// Uniform in [-1, 1), exact in float32.
float Uniform(uint64_t stream, uint64_t index) {
  return static_cast<float>(static_cast<int32_t>(SplitMix64(stream, index) >> 40) - (1 << 23)) *
         0x1p-23f;
}

void Fill(const Slot& slot, uint64_t stream) {
  slot.values->resize(slot.count());
  const bool norm = slot.shape.size() == 1;
  // Queries and keys a little larger than unit variance: attention is then neither flat nor one
  // row.
  const double gain = slot.part == Part::kQuery || slot.part == Part::kKey ? 1.4 : 1;
  const auto scale = norm ? 0.2f : static_cast<float>(gain * std::sqrt(3.0 / slot.shape[1]));
  for (uint64_t i = 0; i < slot.values->size(); ++i) {
    (*slot.values)[i] = (norm ? 1.0f : 0.0f) + scale * Uniform(stream, i);
  }
}

}  // namespace

Weights RandomWeights(const ModelConfig& config, uint64_t seed) {
  Weights weights;
  weights.config = config;
  uint64_t stream = 0;
  for (const Slot& slot : Slots(&weights)) Fill(slot, SplitMix64(seed, stream++));
  return weights;
}

}  // namespace kvtriage::decoder
