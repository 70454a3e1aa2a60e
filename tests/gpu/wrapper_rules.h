// What the dumped instructions have to give, worked out from the descriptions in the PTX ISA 8.5
// (sections "Matrix Fragments for mma.m16n8k16", "ldmatrix", "ex2", "cp.async"), matrix by matrix
// and not lane by lane, so that neither the emulator's nor the kernels' reading of them is used.
#ifndef KVTRIAGE_TESTS_GPU_WRAPPER_RULES_H_
#define KVTRIAGE_TESTS_GPU_WRAPPER_RULES_H_

#include <string>

#include "tests/gpu/wrapper_dump.h"

namespace kvtriage::gpu {

// Small whole numbers, different enough that a wrong place shows; all sums of products are exact.
WrapperInput MakeWrapperInput();

// The right answer. 2^x correctly rounded, subnormal results 0.
WrapperDump RightDump(const WrapperInput& input);

// Empty, or where `dump` differs from `right`. 2^x may be off by 2 units in the last place.
std::string DifferenceOf(const WrapperDump& dump, const WrapperDump& right);

}  // namespace kvtriage::gpu

#endif  // KVTRIAGE_TESTS_GPU_WRAPPER_RULES_H_
