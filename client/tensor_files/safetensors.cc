#include "client/tensor_files/safetensors.h"

#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status_macros.h"
#include "nlohmann/json.hpp"

namespace kvtriage {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxAxes = 8;

struct TypeSize {
  const char* name;
  uint64_t bytes;
};
constexpr std::array kTypeSizes = {
    TypeSize{"F64", 8},  TypeSize{"F32", 4},     TypeSize{"F16", 2},     TypeSize{"BF16", 2},
    TypeSize{"I64", 8},  TypeSize{"I32", 4},     TypeSize{"I16", 2},     TypeSize{"I8", 1},
    TypeSize{"U64", 8},  TypeSize{"U32", 4},     TypeSize{"U16", 2},     TypeSize{"U8", 1},
    TypeSize{"BOOL", 1}, TypeSize{"F8_E4M3", 1}, TypeSize{"F8_E5M2", 1},
};

std::optional<uint64_t> TypeBytes(const std::string& dtype) {
  for (const TypeSize& type : kTypeSizes) {
    if (dtype == type.name) return type.bytes;
  }
  return std::nullopt;
}

// Array of at most `most` non-negative integers; nothing for anything else.
std::optional<std::vector<uint64_t>> Numbers(const Json& json, uint64_t most) {
  if (!json.is_array() || json.size() > most) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (const Json& item : json) {
    if (!item.is_number_unsigned()) return std::nullopt;
    numbers.push_back(item.get<uint64_t>());
  }
  return numbers;
}

// What one entry of the header says; an error text when it contradicts itself or the file.
absl::StatusOr<TensorEntry> ParseEntry(const Json& json, uint64_t data_offset,
                                       uint64_t file_bytes) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string()) {
    return absl::InvalidArgumentError("its header entry has no dtype");
  }
  TensorEntry entry;
  entry.dtype = json["dtype"].get<std::string>();
  const auto shape = Numbers(json.value("shape", Json()), kMaxAxes);
  const auto range = Numbers(json.value("data_offsets", Json()), 2);
  if (!shape || !range || range->size() != 2) {
    return absl::InvalidArgumentError("its header entry has no valid shape and data_offsets");
  }
  entry.shape = *shape;
  const uint64_t data_bytes = file_bytes - data_offset;
  const auto [begin, end] = std::pair((*range)[0], (*range)[1]);
  if (begin > end || end > data_bytes) {
    return absl::OutOfRangeError(absl::StrCat("its data ends at byte ", end,
                                              " but the file holds only ", data_bytes,
                                              " bytes of data (is it truncated?)"));
  }
  entry.offset = data_offset + begin;
  entry.bytes = end - begin;
  const auto type_bytes = TypeBytes(entry.dtype);
  if (!type_bytes) return absl::InvalidArgumentError("its dtype is unknown");
  std::optional<uint64_t> want = type_bytes;
  for (const uint64_t extent : entry.shape) want = want ? CheckedMul(*want, extent) : std::nullopt;
  if (!want || *want != entry.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("its shape does not fit its ", entry.bytes, " bytes of data"));
  }
  return entry;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  KVTRIAGE_RETURN_IF_ERROR(file.OpenRegular(path));
  const uint64_t file_bytes = file.file_bytes();
  uint64_t header_bytes = 0;
  if (file_bytes < sizeof header_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file_bytes, " bytes are too few for a safetensors file"));
  }
  static_assert(std::endian::native == std::endian::little);
  KVTRIAGE_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - sizeof header_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": not a safetensors file, or truncated: it announces a header of ", header_bytes,
        " bytes (at most ", kMaxHeaderBytes, " are read) in a file of ", file_bytes, " bytes"));
  }
  std::string header(header_bytes, '\0');
  KVTRIAGE_RETURN_IF_ERROR(file.ReadAt(
      sizeof header_bytes, std::as_writable_bytes(std::span(header.data(), header.size()))));
  KVTRIAGE_RETURN_IF_ERROR(file.ParseHeader(header, sizeof header_bytes + header_bytes));
  return file;
}

absl::Status SafetensorsFile::ParseHeader(const std::string& text, uint64_t data_offset) {
  const Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path(), ": not a safetensors file: its header is not a JSON object"));
  }
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      if (!json.is_object()) continue;
      for (const auto& [key, value] : json.items()) {
        if (value.is_string()) metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    absl::StatusOr<TensorEntry> entry = ParseEntry(json, data_offset, file_bytes());
    if (!entry.ok()) {
      return absl::Status(entry.status().code(),
                          absl::StrCat(path(), ": tensor ", name, ": ", entry.status().message()));
    }
    Add(name, *std::move(entry));
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
