// The shape of a CUDA device's UUID.
#ifndef KVTRIAGE_SERVICE_VALIDATE_DEVICE_UUID_H_
#define KVTRIAGE_SERVICE_VALIDATE_DEVICE_UUID_H_

#include <algorithm>
#include <cctype>
#include <string_view>

#include "service/validate/limits.h"

namespace kvtriage {

// "GPU-" or "MIG-" and what the driver writes behind it: hexadecimal digits in groups, for some MIG
// instances two numbers behind slashes.
inline bool IsDeviceUuid(std::string_view uuid) {
  if (uuid.size() <= 4 || uuid.size() > kMaxDeviceUuidBytes) return false;
  if (!uuid.starts_with("GPU-") && !uuid.starts_with("MIG-")) return false;
  return std::all_of(uuid.begin(), uuid.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '/'; });
}

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_VALIDATE_DEVICE_UUID_H_
