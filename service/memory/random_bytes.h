// Unguessable numbers, from the kernel. Never fails: without randomness there is no service to run,
// and the process aborts.
#ifndef KVTRIAGE_SERVICE_MEMORY_RANDOM_BYTES_H_
#define KVTRIAGE_SERVICE_MEMORY_RANDOM_BYTES_H_

#include <cstdint>
#include <span>

namespace kvtriage {

void FillRandom(std::span<uint8_t> bytes);
uint64_t RandomNumber();  // never 0
uint64_t RandomId();  // never below 2^32, so that it cannot be taken for an index into a request

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_MEMORY_RANDOM_BYTES_H_
