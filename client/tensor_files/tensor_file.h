// A file that holds named tensors, whatever its format: where each lies and how it is read.
#ifndef KVTRIAGE_CLIENT_TENSOR_FILES_TENSOR_FILE_H_
#define KVTRIAGE_CLIENT_TENSOR_FILES_TENSOR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace kvtriage {

struct TensorEntry {
  std::string dtype;            // as the format names it: "F16", "F32", "BF16", "I32", "Q8_0", ...
  std::vector<uint64_t> shape;  // slowest axis first
  uint64_t offset = 0;          // from the start of the file
  uint64_t bytes = 0;           // equals the shape's size and lies in the file; both were checked
};

// Read by the classes of the formats. Owns the descriptor; move-only.
class TensorFile {
 public:
  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&& other) noexcept;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;
  ~TensorFile();

  const std::string& path() const { return path_; }

  // Null when there is no such tensor.
  const TensorEntry* Find(const std::string& name) const;

  // Reads the whole tensor; `out` has exactly entry.bytes bytes.
  absl::Status Read(const TensorEntry& entry, std::span<std::byte> out) const;

 protected:
  TensorFile() = default;
  // Opens a regular file. Errors here and below name the file and what is wrong with it.
  absl::Status OpenRegular(const std::string& path);
  uint64_t file_bytes() const { return file_bytes_; }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
  // False when the name is taken.
  bool Add(const std::string& name, TensorEntry entry);

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t file_bytes_ = 0;
  std::map<std::string, TensorEntry> tensors_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_CLIENT_TENSOR_FILES_TENSOR_FILE_H_
