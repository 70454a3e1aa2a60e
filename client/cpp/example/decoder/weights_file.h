// What the loaders of both file formats share.
#ifndef KVTRIAGE_DECODER_WEIGHTS_FILE_H_
#define KVTRIAGE_DECODER_WEIGHTS_FILE_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/cpp/example/decoder/weights.h"
#include "client/tensor_files/tensor_file.h"

namespace kvtriage::decoder {

// The same error with "place: " in front.
absl::Status WithPlace(const absl::Status& status, std::string_view place);

// Fills every slot of `weights->config` with the file's tensor of that name. All shapes are
// compared first, so a configuration that the file does not bear out allocates nothing. Errors name
// the file and the tensor: NOT_FOUND (missing), INVALID_ARGUMENT (another shape), UNIMPLEMENTED (a
// type that is not read).
absl::Status FillFrom(const TensorFile& file,
                      const std::function<std::string(const Slot&)>& name_of, Weights* weights);

}  // namespace kvtriage::decoder

#endif  // KVTRIAGE_DECODER_WEIGHTS_FILE_H_
