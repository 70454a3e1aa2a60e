// PyramidKV (arXiv 2406.02069): early layers keep more rows than late ones.
#ifndef KVTRIAGE_SERVICE_POLICY_PYRAMID_H_
#define KVTRIAGE_SERVICE_POLICY_PYRAMID_H_

#include <cstdint>
#include <vector>

namespace kvtriage {

// Free slots of every layer of the model, layer 0 first; they add up to layers * slots exactly. A
// straight line from 2t - t/beta down to t/beta (t = slots), or, where that begins above
// `candidates` (m), from m down to 2t - m. No layer ends below `least`. slots <= candidates < 2^25,
// 1 <= layers <= 4096, 1 <= beta <= 2^20, least <= slots.
std::vector<uint32_t> PyramidSlots(uint32_t layers, uint32_t slots, uint32_t candidates,
                                   uint32_t beta, uint32_t least);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_POLICY_PYRAMID_H_
