// Checks of single fields that every message shares. Errors name `field` and nothing the client
// sent but numbers.
#ifndef KVTRIAGE_SERVICE_VALIDATE_FIELD_CHECKS_H_
#define KVTRIAGE_SERVICE_VALIDATE_FIELD_CHECKS_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace kvtriage {

// "sequences[3]"
std::string Indexed(std::string_view field, uint64_t index);

// The same error for a message that stands at `field` of a larger one: "k" + "num_blocks" is
// "k.num_blocks"; an error about the message as a whole gets "k".
absl::Status UnderField(const absl::Status& status, const std::string& field);

absl::Status Missing(std::string_view field);
absl::Status Invalid(std::string_view field, std::string_view text);

// In [0, 1]; false for NaN.
bool IsShare(double value);

// FIELD_INVALID outside [1, most].
absl::Status CheckRange(std::string_view field, uint32_t value, uint32_t most);

// ENUM_UNSPECIFIED for 0 and for numbers that `is_valid` (generated beside the enum) does not know;
// UNSUPPORTED for numbers kept free for features that are not built.
absl::Status CheckEnum(std::string_view field, int value, bool (*is_valid)(int),
                       std::initializer_list<int> not_built = {});

// Decodes little-endian int32s. FIELD_INVALID when the length is not a multiple of 4, TOO_MANY
// (before anything is allocated) above `most` entries.
absl::Status ReadInt32s(std::string_view field, const std::string& bytes, uint64_t most,
                        std::vector<int32_t>& out);

// Row numbers of [0, rows), ascending without repeats: INDEX_OUT_OF_RANGE, INDEX_INVALID.
// `first_index` is added to the index an error names.
absl::Status CheckRowList(std::string_view field, std::span<const int32_t> list, uint64_t rows,
                          uint64_t first_index = 0);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_FIELD_CHECKS_H_
