// Reads GGUF files, versions 2 and 3 (magic, counts, typed metadata, tensor descriptions, aligned
// data), without trusting a byte of them: sizes are checked against the file before anything is
// allocated, metadata that is an array is skipped, and only what is asked for is read.
#ifndef KVTRIAGE_CLIENT_TENSOR_FILES_GGUF_H_
#define KVTRIAGE_CLIENT_TENSOR_FILES_GGUF_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/tensor_files/tensor_file.h"

namespace kvtriage {

// Tensors have their GGUF type as dtype ("Q4_K"). Those of a type that WidenTo does not read are
// listed with 0 bytes: whoever needs them refuses them by name.
class GgufFile : public TensorFile {
 public:
  // Errors name the file and what is wrong with it. Metadata and tensor descriptions may hold at
  // most 64 MiB.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  bool Has(const std::string& key) const { return metadata_.contains(key); }
  // Nothing when the key is absent or of another kind; arrays are of no kind.
  std::optional<uint64_t> Count(const std::string& key) const;  // a whole number, not negative
  std::optional<double> Number(const std::string& key) const;
  std::optional<std::string> Text(const std::string& key) const;

 private:
  class Cursor;
  using Value = std::variant<std::monostate, uint64_t, double, std::string>;

  GgufFile() = default;
  absl::Status ParseHeader(Cursor& cursor);
  bool ParseMetadata(Cursor& cursor);
  absl::Status ParseTensor(Cursor& cursor, std::string* name, TensorEntry* entry) const;
  absl::Status PlaceTensor(uint64_t data_begin, TensorEntry* entry) const;
  static bool ParseValue(Cursor& cursor, uint32_t type, Value* value);

  std::map<std::string, Value> metadata_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_CLIENT_TENSOR_FILES_GGUF_H_
