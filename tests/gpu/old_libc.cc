// What the static libstdc++ of our build asks of glibc 2.36, so that the package also runs where
// glibc is older: random numbers of the kernel's.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) std::abort();
  return number;
}
