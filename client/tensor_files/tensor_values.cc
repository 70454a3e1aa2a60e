#include "client/tensor_files/tensor_values.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/dtype.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

constexpr uint32_t kBlock = 32;  // numbers in a block of every quantised type here

float HalfAt(const std::byte* at) { return LoadElement(at, DType::kF16); }

template <DType kType>
void WidenOne(const std::byte* block, float* out) {
  *out = LoadElement(block, kType);
}

// step, 32 signed bytes.
void WidenQ8_0(const std::byte* block, float* out) {
  for (uint32_t i = 0; i < kBlock; ++i) {
    out[i] = HalfAt(block) * static_cast<float>(std::to_integer<int8_t>(block[2 + i]));
  }
}

// 16 bytes at `codes`: number i in the low half of byte i, number i + 16 in the high half.
template <typename Decode>
void WidenNibbles(const std::byte* codes, float* out, Decode decode) {
  for (uint32_t i = 0; i < kBlock / 2; ++i) {
    out[i] = decode(std::to_integer<int>(codes[i] & std::byte{15}));
    out[i + kBlock / 2] = decode(std::to_integer<int>(codes[i] >> 4));
  }
}

// step, codes around 8.
void WidenQ4_0(const std::byte* block, float* out) {
  WidenNibbles(block + 2, out,
               [step = HalfAt(block)](int code) { return step * static_cast<float>(code - 8); });
}

// step, least value, codes above it.
void WidenQ4_1(const std::byte* block, float* out) {
  WidenNibbles(block + 4, out, [step = HalfAt(block), least = HalfAt(block + 2)](int code) {
    return step * static_cast<float>(code) + least;
  });
}

struct Reader {
  StoredType type;
  void (*widen)(const std::byte* block, float* out);
};
constexpr std::array kReaders = {
    Reader{{"F32", 1, 4}, WidenOne<DType::kF32>},
    Reader{{"F16", 1, 2}, WidenOne<DType::kF16>},
    Reader{{"BF16", 1, 2}, WidenOne<DType::kBF16>},
    Reader{{"Q8_0", kBlock, 2 + kBlock}, WidenQ8_0},
    Reader{{"Q4_0", kBlock, 2 + kBlock / 2}, WidenQ4_0},
    Reader{{"Q4_1", kBlock, 4 + kBlock / 2}, WidenQ4_1},
};

const Reader* Find(std::string_view dtype) {
  for (const Reader& reader : kReaders) {
    if (reader.type.name == dtype) return &reader;
  }
  return nullptr;
}

}  // namespace

std::optional<StoredType> ReadableType(std::string_view dtype) {
  const Reader* const reader = Find(dtype);
  return reader == nullptr ? std::nullopt : std::optional(reader->type);
}

absl::Status CheckReadable(std::string_view dtype) {
  if (Find(dtype) != nullptr) return absl::OkStatus();
  std::string read;
  for (const Reader& reader : kReaders) absl::StrAppend(&read, " ", std::string(reader.type.name));
  return absl::UnimplementedError(
      absl::StrCat("its numbers are ", std::string(dtype), "; read are", read));
}

absl::Status WidenTo(std::string_view dtype, std::span<const std::byte> bytes,
                     std::vector<float>& values) {
  KVTRIAGE_RETURN_IF_ERROR(CheckReadable(dtype));
  const Reader& reader = *Find(dtype);
  const size_t blocks = bytes.size() / reader.type.bytes;
  values.resize(blocks * reader.type.elements);
  for (size_t i = 0; i < blocks; ++i) {
    reader.widen(bytes.data() + i * reader.type.bytes, values.data() + i * reader.type.elements);
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
