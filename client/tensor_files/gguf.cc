#include "client/tensor_files/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/tensor_files/tensor_values.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxEntries = 1 << 16;  // metadata keys, and tensors
constexpr uint32_t kMaxAxes = 4;
constexpr uint64_t kDefaultAlignment = 32;

// Numbers of metadata types.
enum : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of a metadata number; 0 for what has no fixed size.
uint32_t BytesOf(uint32_t type) {
  constexpr std::array<uint32_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < kBytes.size() ? kBytes[type] : 0;
}

// Names of tensor types by their number; empty ones were withdrawn.
constexpr std::array<std::string_view, 40> kTypeNames = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

std::string TypeName(uint32_t type) {
  if (type < kTypeNames.size() && !kTypeNames[type].empty()) return std::string(kTypeNames[type]);
  return absl::StrCat("of the unknown type ", type);
}

}  // namespace

// Walks through the header's bytes; everything fails once they are used up.
class GgufFile::Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }

  bool Skip(uint64_t count) {
    if (!RangeFits(at_, count, bytes_.size())) return false;
    at_ += count;
    return true;
  }
  template <typename T>
  bool Take(T* value) {
    const uint64_t from = at_;
    if (!Skip(sizeof *value)) return false;
    std::memcpy(value, bytes_.data() + from, sizeof *value);
    return true;
  }
  bool TakeText(std::string* text) {
    uint64_t count = 0;
    if (!Take(&count)) return false;
    const uint64_t from = at_;
    if (!Skip(count)) return false;
    text->assign(reinterpret_cast<const char*>(bytes_.data()) + from, count);
    return true;
  }
  bool SkipText() {
    uint64_t count = 0;
    return Take(&count) && Skip(count);
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

namespace {

template <typename T>
bool TakeNumber(auto& cursor, auto* value) {
  T number = 0;
  if (!cursor.Take(&number)) return false;
  if constexpr (std::is_floating_point_v<T>) {
    *value = double{number};
  } else if (number >= 0) {
    *value = static_cast<uint64_t>(number);
  } else {
    *value = static_cast<double>(number);
  }
  return true;
}

// Arrays of numbers and of strings; arrays of arrays, which no model needs, are refused.
bool SkipArray(auto& cursor) {
  uint32_t type = 0;
  uint64_t count = 0;
  if (!cursor.Take(&type) || !cursor.Take(&count)) return false;
  if (type == kString) {
    for (uint64_t i = 0; i < count; ++i) {
      if (!cursor.SkipText()) return false;
    }
    return true;
  }
  const auto bytes = CheckedMul(count, BytesOf(type));
  return BytesOf(type) != 0 && bytes.has_value() && cursor.Skip(*bytes);
}

}  // namespace

bool GgufFile::ParseValue(Cursor& cursor, uint32_t type, Value* value) {
  switch (type) {
    case kU8:
    case kBool:
      return TakeNumber<uint8_t>(cursor, value);
    case kI8:
      return TakeNumber<int8_t>(cursor, value);
    case kU16:
      return TakeNumber<uint16_t>(cursor, value);
    case kI16:
      return TakeNumber<int16_t>(cursor, value);
    case kU32:
      return TakeNumber<uint32_t>(cursor, value);
    case kI32:
      return TakeNumber<int32_t>(cursor, value);
    case kU64:
      return TakeNumber<uint64_t>(cursor, value);
    case kI64:
      return TakeNumber<int64_t>(cursor, value);
    case kF32:
      return TakeNumber<float>(cursor, value);
    case kF64:
      return TakeNumber<double>(cursor, value);
    case kString: {
      std::string text;
      if (!cursor.TakeText(&text)) return false;
      *value = std::move(text);
      return true;
    }
    case kArray:
      return SkipArray(cursor);
    default:
      return false;
  }
}

bool GgufFile::ParseMetadata(Cursor& cursor) {
  std::string key;
  uint32_t type = 0;
  Value value;
  if (!cursor.TakeText(&key) || !cursor.Take(&type) || !ParseValue(cursor, type, &value)) {
    return false;
  }
  metadata_[key] = std::move(value);
  return true;
}

absl::Status GgufFile::ParseTensor(Cursor& cursor, std::string* name, TensorEntry* entry) const {
  uint32_t axes = 0, type = 0;
  bool whole = cursor.TakeText(name) && cursor.Take(&axes);
  if (whole && axes > kMaxAxes) return absl::InvalidArgumentError("more than 4 axes");
  entry->shape.resize(axes);
  for (uint64_t& extent : entry->shape) whole = whole && cursor.Take(&extent);
  std::reverse(entry->shape.begin(), entry->shape.end());  // GGUF has the fastest axis first
  whole = whole && cursor.Take(&type) && cursor.Take(&entry->offset);
  entry->dtype = TypeName(type);
  return whole ? absl::OkStatus() : absl::OutOfRangeError("its description is cut off");
}

// From an offset in the data to a checked range of the file.
absl::Status GgufFile::PlaceTensor(uint64_t data_begin, TensorEntry* entry) const {
  const std::optional<StoredType> type = ReadableType(entry->dtype);
  if (!type.has_value()) return absl::OkStatus();  // its size is not known: nobody reads it
  std::optional<uint64_t> numbers = 1;
  for (const uint64_t extent : entry->shape) {
    numbers = numbers ? CheckedMul(*numbers, extent) : std::nullopt;
  }
  const uint64_t row = entry->shape.empty() ? 1 : entry->shape.back();
  if (!numbers || row % type->elements != 0) {
    return absl::InvalidArgumentError("its shape is no whole number of blocks");
  }
  const auto bytes = CheckedMul(*numbers / type->elements, type->bytes);
  const auto offset = CheckedAdd(data_begin, entry->offset);
  if (!bytes || !offset || !RangeFits(*offset, *bytes, file_bytes())) {
    return absl::OutOfRangeError(absl::StrCat("its data does not fit the file of ", file_bytes(),
                                              " bytes (is it truncated?)"));
  }
  entry->offset = *offset;
  entry->bytes = *bytes;
  return absl::OkStatus();
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  static_assert(std::endian::native == std::endian::little);
  GgufFile file;
  KVTRIAGE_RETURN_IF_ERROR(file.OpenRegular(path));
  std::vector<std::byte> header(std::min(file.file_bytes(), kMaxHeaderBytes));
  KVTRIAGE_RETURN_IF_ERROR(file.ReadAt(0, header));
  Cursor cursor(header);
  const absl::Status status = file.ParseHeader(cursor);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  }
  return file;
}

absl::Status GgufFile::ParseHeader(Cursor& cursor) {
  uint32_t magic = 0, version = 0;
  uint64_t tensors = 0, keys = 0;
  const bool begins =
      cursor.Take(&magic) && cursor.Take(&version) && cursor.Take(&tensors) && cursor.Take(&keys);
  if (!begins || magic != 0x46554747) return absl::InvalidArgumentError("not a GGUF file");
  if (version != 2 && version != 3) {
    return absl::UnimplementedError(absl::StrCat("GGUF version ", version, "; 2 and 3 are read"));
  }
  if (keys > kMaxEntries || tensors > kMaxEntries) {
    return absl::InvalidArgumentError(absl::StrCat("announces ", keys, " keys and ", tensors,
                                                   " tensors; at most ", kMaxEntries,
                                                   " of each are read"));
  }
  for (uint64_t i = 0; i < keys; ++i) {
    if (!ParseMetadata(cursor)) {
      return absl::InvalidArgumentError(absl::StrCat("metadata ", i, " of ", keys,
                                                     " is cut off, of an unknown type, or ends "
                                                     "behind the first ",
                                                     kMaxHeaderBytes, " bytes"));
    }
  }
  std::vector<std::pair<std::string, TensorEntry>> entries;
  const auto wrong = [&](const absl::Status& status, const std::string& name) {
    return absl::Status(status.code(), absl::StrCat("tensor ", name, ": ", status.message()));
  };
  for (uint64_t i = 0; i < tensors; ++i) {
    auto& [name, entry] = entries.emplace_back();
    const absl::Status status = ParseTensor(cursor, &name, &entry);
    if (!status.ok()) return wrong(status, name);
  }
  const uint64_t alignment = Count("general.alignment").value_or(kDefaultAlignment);
  if (alignment == 0 || alignment > file_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("general.alignment: got ", alignment));
  }
  const uint64_t data_begin = CeilDiv(cursor.at(), alignment) * alignment;
  for (auto& [name, entry] : entries) {
    const absl::Status status = PlaceTensor(data_begin, &entry);
    if (!status.ok()) return wrong(status, name);
    if (!Add(name, std::move(entry))) return absl::InvalidArgumentError("tensor twice: " + name);
  }
  return absl::OkStatus();
}

std::optional<uint64_t> GgufFile::Count(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::nullopt;
  const auto* const count = std::get_if<uint64_t>(&found->second);
  return count == nullptr ? std::nullopt : std::optional(*count);
}

std::optional<double> GgufFile::Number(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::nullopt;
  if (const auto* const number = std::get_if<double>(&found->second)) return *number;
  const std::optional<uint64_t> count = Count(key);
  return count ? std::optional(static_cast<double>(*count)) : std::nullopt;
}

std::optional<std::string> GgufFile::Text(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::nullopt;
  const auto* const text = std::get_if<std::string>(&found->second);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

}  // namespace kvtriage
