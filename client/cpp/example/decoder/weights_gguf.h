// Weights from a GGUF file of architecture "llama".
#ifndef KVTRIAGE_DECODER_WEIGHTS_GGUF_H_
#define KVTRIAGE_DECODER_WEIGHTS_GGUF_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/weights.h"

namespace kvtriage::decoder {

// Reads `path`; the configuration is in its metadata. F32, F16, BF16, Q8_0, Q4_0 and Q4_1, every
// other type is refused by name. Such files store the rows of W_Q and W_K in the order that turns
// interleaved pairs; they are put back into half-split order. Errors name the file, and the tensor
// or key that is missing, has another shape, or is of a type or kind this decoder does not compute.
absl::StatusOr<Weights> LoadGguf(const std::string& path);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_WEIGHTS_GGUF_H_
