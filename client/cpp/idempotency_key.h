// One key names one effect: a repeat with the same key never runs twice.
#ifndef KVTRIAGE_CLIENT_CPP_IDEMPOTENCY_KEY_H_
#define KVTRIAGE_CLIENT_CPP_IDEMPOTENCY_KEY_H_

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace kvtriage::client {

using IdempotencyKey = std::array<uint8_t, 16>;

// 16 random bytes. getrandom of at most 256 bytes neither fails nor returns short once the kernel
// is up.
inline IdempotencyKey NewKey() {
  IdempotencyKey key{};
  while (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
  }
  return key;
}

inline std::string_view AsBytes(const IdempotencyKey& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_CPP_IDEMPOTENCY_KEY_H_
