// Reading and printing single configuration values. Errors say what was expected, not which key.
#ifndef KVTRIAGE_SERVICE_APP_CONFIG_VALUES_H_
#define KVTRIAGE_SERVICE_APP_CONFIG_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvtriage {

absl::StatusOr<bool> ParseSwitch(std::string_view text);  // "true" or "false"
// Decimal digits only, in [low, high].
absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t low, uint64_t high);
// A number, bare or with KiB, MiB or GiB right behind it.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text, uint64_t low, uint64_t high);
absl::StatusOr<double> ParseShare(std::string_view text);  // above 0, at most 1
// Numbers with commas between them; empty text is an empty list.
absl::StatusOr<std::vector<uint32_t>> ParseIds(std::string_view text);
// "all", "none", or UUIDs of CUDA devices ("GPU-..." or "MIG-...") with commas between them.
absl::StatusOr<std::string> ParseDevices(std::string_view text);
// A Unix socket's path, absolute, at most 107 bytes; a leading "unix:" is left out.
absl::StatusOr<std::string> ParseSocketPath(std::string_view text);

std::string PrintBytes(uint64_t bytes);  // with the largest unit that divides it
std::string PrintIds(const std::vector<uint32_t>& ids);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_CONFIG_VALUES_H_
