#include "service/validate/field_checks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/core/error.h"

namespace kvtriage {

std::string Indexed(std::string_view field, uint64_t index) {
  return absl::StrCat(absl::string_view(field.data(), field.size()), "[", index, "]");
}

absl::Status UnderField(const absl::Status& status, const std::string& field) {
  const auto info = GetErrorInfo(status);
  return WithFieldPrefix(status, info && !info->field.empty() ? field + "." : field);
}

absl::Status Missing(std::string_view field) {
  return Error(ErrorReason::kFieldMissing, field, "required field is missing");
}

absl::Status Invalid(std::string_view field, std::string_view text) {
  return Error(ErrorReason::kFieldInvalid, field, text);
}

bool IsShare(double value) { return value >= 0.0 && value <= 1.0; }

absl::Status CheckRange(std::string_view field, uint32_t value, uint32_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, field, "must be at least 1 and at most the limit")
      .Got(value)
      .Limit(most);
}

absl::Status CheckEnum(std::string_view field, int value, bool (*is_valid)(int),
                       std::initializer_list<int> not_built) {
  if (value != 0 && is_valid(value)) return absl::OkStatus();
  if (std::find(not_built.begin(), not_built.end(), value) != not_built.end()) {
    return Error(ErrorReason::kUnsupported, field, "this kind is not supported yet")
        .Got(static_cast<uint64_t>(value));
  }
  return Error(ErrorReason::kEnumUnspecified, field, "enum is unspecified or unknown")
      .Got(static_cast<uint32_t>(value));
}

absl::Status ReadInt32s(std::string_view field, const std::string& bytes, uint64_t most,
                        std::vector<int32_t>& out) {
  static_assert(std::endian::native == std::endian::little, "arrays are copied as they are");
  if (bytes.size() % sizeof(int32_t) != 0) {
    return Error(ErrorReason::kFieldInvalid, field, "length is not a multiple of 4")
        .Got(bytes.size());
  }
  const uint64_t entries = bytes.size() / sizeof(int32_t);
  if (entries > most) {
    return Error(ErrorReason::kTooMany, field, "too many entries").Got(entries).Limit(most);
  }
  out.resize(entries);
  if (entries > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status CheckRowList(std::string_view field, std::span<const int32_t> list, uint64_t rows,
                          uint64_t first_index) {
  for (size_t i = 0; i < list.size(); ++i) {
    // A negative number becomes a large one: it is outside too.
    const uint64_t row = static_cast<uint32_t>(list[i]);
    if (row >= rows) {
      return Error(ErrorReason::kIndexOutOfRange, field, "row outside the sequence")
          .Index(first_index + i)
          .Got(row)
          .Limit(rows);
    }
    if (i > 0 && list[i] <= list[i - 1]) {
      return Error(ErrorReason::kIndexInvalid, field, "rows are not ascending without repeats")
          .Index(first_index + i)
          .Got(row);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
