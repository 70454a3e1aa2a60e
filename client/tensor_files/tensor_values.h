// The numbers of a tensor as float32.
#ifndef KVTRIAGE_CLIENT_TENSOR_FILES_TENSOR_VALUES_H_
#define KVTRIAGE_CLIENT_TENSOR_FILES_TENSOR_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace kvtriage {

// How numbers are stored: blocks of `elements` in `bytes`. A block of GGUF's quantised types has
// one float16 step (and least value) for 32 numbers.
struct StoredType {
  std::string_view name;
  uint32_t elements = 1;
  uint32_t bytes = 0;
};

// The types that can be read: F32, F16, BF16, Q8_0, Q4_0, Q4_1; nothing for any other name.
std::optional<StoredType> ReadableType(std::string_view dtype);
// UNIMPLEMENTED, naming the type and those that are read.
absl::Status CheckReadable(std::string_view dtype);

// Widens little-endian bytes of a readable type into `values`, which get exactly the numbers that
// the bytes hold; a part of a block at the end is left out.
absl::Status WidenTo(std::string_view dtype, std::span<const std::byte> bytes,
                     std::vector<float>& values);

}  // namespace kvtriage

#endif  // KVTRIAGE_CLIENT_TENSOR_FILES_TENSOR_VALUES_H_
