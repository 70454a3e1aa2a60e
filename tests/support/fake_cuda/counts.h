// How often each call was made: in a file of the folder, so that other processes can read it.
#ifndef KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_COUNTS_H_
#define KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_COUNTS_H_

#include <cstdint>

namespace kvtriage::fake_cuda {

// Thread-safe. Returns the number of this call, from 1.
uint64_t CountCall(const char* name);
// Of calls; states (allocations, mappings) stay.
void ResetCounts();

}  // namespace kvtriage::fake_cuda

#endif  // KVTRIAGE_TESTS_SUPPORT_FAKE_CUDA_COUNTS_H_
