// Reads safetensors files (8-byte header length, JSON header, raw tensors) without trusting a byte
// of them: sizes are checked against the file before anything is allocated, and only what is asked
// for is read.
#ifndef KVTRIAGE_CLIENT_TENSOR_FILES_SAFETENSORS_H_
#define KVTRIAGE_CLIENT_TENSOR_FILES_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tensor_files/tensor_file.h"

namespace kvtriage {

class SafetensorsFile : public TensorFile {
 public:
  // Errors name the file and what is wrong with it. The header may hold at most 4 MiB.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;
  absl::Status ParseHeader(const std::string& text, uint64_t data_offset);

  std::map<std::string, std::string> metadata_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_CLIENT_TENSOR_FILES_SAFETENSORS_H_
