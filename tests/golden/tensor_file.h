// The least of a safetensors reader that the tests need: tensors of the committed dumps as views.
#ifndef KVTRIAGE_TESTS_GOLDEN_TENSOR_FILE_H_
#define KVTRIAGE_TESTS_GOLDEN_TENSOR_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvtriage/kernels/views.h"
#include "nlohmann/json.hpp"

namespace kvtriage {

class TensorFile {
 public:
  explicit TensorFile(const std::string& path);

  std::string Meta(const char* key) const { return head_.at("__metadata__").at(key); }
  std::vector<uint32_t> Shape(const std::string& name) const { return head_.at(name).at("shape"); }

  // A tensor [heads, rows, elems] or [heads, rows]; the file owns the bytes.
  TensorView Tensor(const std::string& name);
  // A tensor [heads, rows, elems] as one block of a cache.
  KvView Cache(const std::string& name);

 private:
  std::byte* Bytes(const nlohmann::json& entry);

  std::vector<std::byte> bytes_;
  nlohmann::json head_;
  size_t data_ = 0;  // where the tensors begin
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_GOLDEN_TENSOR_FILE_H_
