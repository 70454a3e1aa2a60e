// Reads safetensors files (8-byte header length, JSON header, raw tensors) without trusting a byte
// of them: sizes are checked against the file before anything is allocated, and only what is asked
// for is read.
#ifndef KVTRIAGE_CLIENT_CLI_SAFETENSORS_H_
#define KVTRIAGE_CLIENT_CLI_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvtriage::cli {

struct TensorEntry {
  std::string dtype;  // as written in the file: "F16", "F32", "BF16", "I32", ...
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;   // equals the shape's size; both were checked
};

class SafetensorsFile {
 public:
  // Errors name the file and what is wrong with it. The header may hold at most 4 MiB.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Null when there is no such tensor.
  const TensorEntry* Find(const std::string& name) const;

  // Reads the whole tensor; `out` has exactly entry.bytes bytes.
  absl::Status Read(const TensorEntry& entry, std::span<std::byte> out) const;

 private:
  SafetensorsFile() = default;
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
  absl::Status ParseHeader(const std::string& text, uint64_t data_offset, uint64_t file_bytes);

  std::string path_;
  int fd_ = -1;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorEntry> tensors_;
};

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_SAFETENSORS_H_
