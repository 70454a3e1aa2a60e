// Weights from a safetensors checkpoint with the tensor names of Hugging Face's Llama models.
#ifndef KVTRIAGE_DECODER_WEIGHTS_SAFETENSORS_H_
#define KVTRIAGE_DECODER_WEIGHTS_SAFETENSORS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/example/decoder/weights.h"

namespace kvtriage::decoder {

// Reads `path`, and the model's configuration from the file's metadata key "config" or else from
// config.json beside it. F32, F16 and BF16. Every shape is compared with the configuration and
// every size with the file before anything is allocated. Errors name the file, and the tensor or
// key that is missing, has another shape, or is of a type or kind this decoder does not compute.
absl::StatusOr<Weights> LoadSafetensors(const std::string& path);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_WEIGHTS_SAFETENSORS_H_
