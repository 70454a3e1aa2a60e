// Whole shares of a total: how layers and heads split a budget without losing or gaining a row.
#ifndef KVTRIAGE_KERNELS_CORE_SHARE_OUT_H_
#define KVTRIAGE_KERNELS_CORE_SHARE_OUT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvtriage {

// Numbers near num[i] / den that add up to `total` exactly: floors first, the places left go to the
// largest remainders (equal: lower index). Then, while a share is below `least`, the largest share
// (equal: lowest index) gives one to the smallest (equal: lowest index).
//
// The caller makes sure that sum(num) = den * total, that den > 0, that no num is above den * most,
// and that least * num.size() <= total; so no share ends above `most`. Numerators of 64 bits are
// enough for both users: slots * 65536 (adaptive heads), and rows * beta * layers (pyramid).
std::vector<uint32_t> ShareOut(std::span<const uint64_t> num, uint64_t den, uint64_t total,
                               uint32_t least, uint32_t most);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_SHARE_OUT_H_
