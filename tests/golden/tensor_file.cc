#include "tests/golden/tensor_file.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace kvtriage {
namespace {

DType TypeOf(const nlohmann::json& entry) {
  return entry.at("dtype") == "F16" ? DType::kF16 : DType::kF32;
}

}  // namespace

TensorFile::TensorFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::abort();
  }
  bytes_.resize(static_cast<size_t>(file.tellg()));
  file.seekg(0).read(reinterpret_cast<char*>(bytes_.data()),
                     static_cast<std::streamsize>(bytes_.size()));
  uint64_t size = 0;
  std::memcpy(&size, bytes_.data(), sizeof size);
  data_ = sizeof size + size;
  const char* text = reinterpret_cast<const char*>(bytes_.data()) + sizeof size;
  head_ = nlohmann::json::parse(text, text + size);
}

std::byte* TensorFile::Bytes(const nlohmann::json& entry) {
  return bytes_.data() + data_ + entry.at("data_offsets").at(0).get<size_t>();
}

TensorView TensorFile::Tensor(const std::string& name) {
  const nlohmann::json& entry = head_.at(name);
  std::vector<uint32_t> shape = Shape(name);
  if (shape.size() == 2) shape.push_back(1);
  TensorView view{Bytes(entry), TypeOf(entry), shape[1], shape[0], shape[2]};
  view.elem_stride = ElementBytes(view.dtype);
  view.row_stride = view.elem_stride * shape[2];
  view.head_stride = view.row_stride * shape[1];
  return view;
}

KvView TensorFile::Cache(const std::string& name) {
  const TensorView tensor = Tensor(name);
  ViewLayout layout;
  layout.block_stride = tensor.head_stride * tensor.heads;
  layout.head_stride = tensor.head_stride;
  layout.slot_stride = tensor.row_stride;
  layout.elem_stride = tensor.elem_stride;
  layout.num_blocks = 1;
  layout.block_slots = tensor.rows;
  layout.heads = tensor.heads;
  layout.row_elems = tensor.elems;
  layout.dtype = tensor.dtype;
  return {Bytes(head_.at(name)), layout};
}

}  // namespace kvtriage
