#include "service/app/config_values.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/core/checked_math.h"
#include "service/validate/device_uuid.h"

namespace kvtriage {
namespace {

struct Unit {
  std::string_view suffix;
  uint64_t bytes;
};
constexpr std::array kUnits = {Unit{"GiB", uint64_t{1} << 30}, Unit{"MiB", uint64_t{1} << 20},
                               Unit{"KiB", uint64_t{1} << 10}};
constexpr size_t kMaxSocketPath = 107;  // sun_path without its final zero

absl::Status Expected(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", std::string(what)));
}

absl::StatusOr<uint64_t> ParseDigits(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || stop != end) return Expected("a whole number");
  return value;
}

absl::StatusOr<uint64_t> InRange(uint64_t value, uint64_t low, uint64_t high) {
  if (value < low || value > high)
    return Expected(absl::StrCat("a number from ", low, " to ", high));
  return value;
}

}  // namespace

absl::StatusOr<bool> ParseSwitch(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return Expected("true or false");
}

absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t low, uint64_t high) {
  const absl::StatusOr<uint64_t> value = ParseDigits(text);
  return value.ok() ? InRange(*value, low, high) : value;
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t unit_bytes = 1;
  for (const Unit& unit : kUnits) {
    if (text.size() > unit.suffix.size() && text.ends_with(unit.suffix)) {
      unit_bytes = unit.bytes;
      text.remove_suffix(unit.suffix.size());
      break;
    }
  }
  const absl::StatusOr<uint64_t> count = ParseDigits(text);
  if (!count.ok()) return Expected("a size like 1048576, 1024KiB or 1MiB");
  const std::optional<uint64_t> bytes = CheckedMul(*count, unit_bytes);
  if (!bytes.has_value()) return InRange(UINT64_MAX, low, high);
  return InRange(*bytes, low, high);
}

absl::StatusOr<double> ParseShare(std::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value) ||
      !std::isfinite(value) || value <= 0 || value > 1) {
    return Expected("a number above 0 and at most 1");
  }
  return value;
}

absl::StatusOr<std::vector<uint32_t>> ParseIds(std::string_view text) {
  std::vector<uint32_t> ids;
  if (text.empty()) return ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const absl::StatusOr<uint64_t> id =
        ParseNumber(text.substr(begin, end - begin), 0, UINT32_MAX - 1);
    if (!id.ok()) return Expected("numeric ids with commas between them");
    ids.push_back(static_cast<uint32_t>(*id));
    begin = end + 1;
  }
  return ids;
}

absl::StatusOr<std::string> ParseDevices(std::string_view text) {
  if (text == "all" || text == "none") return std::string(text);
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    if (!IsDeviceUuid(rest.substr(0, comma))) {
      return absl::InvalidArgumentError("expected all, none, or UUIDs (GPU-...), never ordinals");
    }
    if (comma == std::string_view::npos) return std::string(text);
    rest.remove_prefix(comma + 1);
  }
}

absl::StatusOr<std::string> ParseSocketPath(std::string_view text) {
  constexpr std::string_view kScheme = "unix:";
  if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
  if (text.size() < 2 || text.front() != '/' || text.back() == '/') {
    return Expected("the absolute path of a socket");
  }
  if (text.size() > kMaxSocketPath) {
    return Expected(
        absl::StrCat("a path of at most ", kMaxSocketPath, " bytes, this one has ", text.size()));
  }
  return std::string(text);
}

std::string PrintBytes(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, std::string(unit.suffix));
    }
  }
  return absl::StrCat(bytes);
}

std::string PrintIds(const std::vector<uint32_t>& ids) { return absl::StrJoin(ids, ","); }

}  // namespace kvtriage
