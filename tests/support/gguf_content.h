// Writes GGUF files, good and bad, byte by byte.
#ifndef KVTRIAGE_TESTS_SUPPORT_GGUF_CONTENT_H_
#define KVTRIAGE_TESTS_SUPPORT_GGUF_CONTENT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvtriage {

template <typename T>
std::string BytesOfNumber(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}
inline std::string GgufText(const std::string& text) {
  return BytesOfNumber<uint64_t>(text.size()) + text;
}

struct GgufContent {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;  // slowest axis first; the file has it the other way round
    uint32_t type = 0;
    std::string data;
  };
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::pair<std::string, std::string>> metadata;  // key, type and value in bytes
  std::vector<Tensor> tensors;
  uint64_t alignment = 32;

  void AddCount(const std::string& key, uint32_t value) {
    metadata.emplace_back(key, BytesOfNumber<uint32_t>(4) + BytesOfNumber(value));
  }
  void AddNumber(const std::string& key, float value) {
    metadata.emplace_back(key, BytesOfNumber<uint32_t>(6) + BytesOfNumber(value));
  }
  void AddText(const std::string& key, const std::string& value) {
    metadata.emplace_back(key, BytesOfNumber<uint32_t>(8) + GgufText(value));
  }
  std::string* Find(const std::string& key) {
    for (auto& [name, value] : metadata) {
      if (name == key) return &value;
    }
    return nullptr;
  }

  std::string File() const {
    std::string file = magic + BytesOfNumber(version) + BytesOfNumber<uint64_t>(tensors.size()) +
                       BytesOfNumber<uint64_t>(metadata.size());
    for (const auto& [key, value] : metadata) file += GgufText(key) + value;
    std::string data;
    for (const Tensor& tensor : tensors) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      file += GgufText(tensor.name) + BytesOfNumber(static_cast<uint32_t>(tensor.shape.size()));
      for (size_t i = tensor.shape.size(); i > 0; --i) file += BytesOfNumber(tensor.shape[i - 1]);
      file += BytesOfNumber(tensor.type) + BytesOfNumber<uint64_t>(data.size());
      data += tensor.data;
    }
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data;
  }
};

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_GGUF_CONTENT_H_
