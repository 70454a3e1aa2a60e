#include "service/memory/random_bytes.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace kvtriage {
namespace {

uint64_t NumberAtLeast(uint64_t least) {
  uint64_t value = 0;
  while (value < least) {
    std::array<uint8_t, sizeof(value)> bytes;
    FillRandom(bytes);
    std::memcpy(&value, bytes.data(), sizeof(value));
  }
  return value;
}

}  // namespace

void FillRandom(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR) std::abort();
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

uint64_t RandomNumber() { return NumberAtLeast(1); }

uint64_t RandomId() { return NumberAtLeast(uint64_t{1} << 32); }

}  // namespace kvtriage
