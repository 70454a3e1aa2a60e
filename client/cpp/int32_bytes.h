// Little-endian int32 arrays, as they travel in `bytes`.
#ifndef KVTRIAGE_CLIENT_CPP_INT32_BYTES_H_
#define KVTRIAGE_CLIENT_CPP_INT32_BYTES_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvtriage::client {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian, and so are we");

inline std::string ToBytes(std::span<const int32_t> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// Nothing when the length is not a multiple of 4.
inline std::optional<std::vector<int32_t>> FromBytes(std::string_view bytes) {
  if (bytes.size() % sizeof(int32_t) != 0) return std::nullopt;
  std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Bit i of a bitmap whose lowest bit comes first; false behind its end.
inline bool BitAt(std::string_view bitmap, size_t i) {
  return i / 8 < bitmap.size() && ((static_cast<uint8_t>(bitmap[i / 8]) >> (i % 8)) & 1) != 0;
}

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_INT32_BYTES_H_
