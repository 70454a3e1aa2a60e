// The input numbers of golden cases, the same here and in the NumPy reference
// (tests/golden/ref_np.py). Multiples of 1/16 within about +-8: exact in f32, f16 and bf16, so one
// golden serves all three types.
#ifndef KVTRIAGE_TESTS_SUPPORT_GOLDEN_INPUTS_H_
#define KVTRIAGE_TESTS_SUPPORT_GOLDEN_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvtriage {

// Number `n` of a stream: an integer in [-127, 127], roughly normal with deviation 18.
int GridInt(uint64_t stream, uint64_t n);

// The first `count` numbers of a stream, over 16.
std::vector<float> GridValues(uint64_t stream, size_t count);

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_SUPPORT_GOLDEN_INPUTS_H_
