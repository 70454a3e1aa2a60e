// Seeded random weights: a model that says nothing, computed like one that does.
#ifndef KVTRIAGE_DECODER_WEIGHTS_RANDOM_H_
#define KVTRIAGE_DECODER_WEIGHTS_RANDOM_H_

#include "client/cpp/example/decoder/weights.h"

namespace kvtriage::decoder {

// The same numbers on every machine for the same configuration and seed. Logits of attention spread
// widely enough that some rows matter much more than others. `config` must have passed CheckConfig.
Weights RandomWeights(const ModelConfig& config, uint64_t seed);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_WEIGHTS_RANDOM_H_
