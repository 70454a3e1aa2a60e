// The arithmetic of selection that no device has a say in: how many slots each list and stage gets.
#ifndef KVTRIAGE_KERNELS_CORE_SELECT_RULES_H_
#define KVTRIAGE_KERNELS_CORE_SELECT_RULES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvtriage/kernels/select.h"

namespace kvtriage {

// Of `slots` free slots, those that the first of two stages fills: none for a share of 0, else at
// least one.
uint32_t FirstStageSlots(uint32_t slots, double share);

// Free slots per head from how many of the layer's best belong to each (`counts`); AdaptiveCounts
// in kvtriage/kernels/select.h has the rule. `candidates` per head.
std::vector<uint32_t> AdaptiveShares(std::span<const uint64_t> counts, uint32_t slots, double alpha,
                                     uint32_t least, uint32_t candidates);

// What AdaptiveShares is asked with for a request; nothing when every list keeps all its rows or
// the request is not adaptive.
struct AdaptiveQuestion {
  uint32_t slots;  // per list; the layer's best lists * slots are to be counted
  uint32_t least;
};
std::optional<AdaptiveQuestion> AdaptiveOf(const SelectRequest& request);

// Free slots of every list; empty when every list keeps all its rows. `shares` are the adaptive
// ones, for a request that has them.
std::vector<uint32_t> FreeSlots(const SelectRequest& request, std::span<const uint32_t> shares);

// Rows below `rows` that are not in the ascending `protect`, ascending.
std::vector<int32_t> Unprotected(uint32_t rows, std::span<const int32_t> protect);

// Counts what the two stages choose in the lists that drop rows.
void CountStages(const SelectRequest& request, std::span<const uint32_t> slots,
                 SelectResult& result);

}  // namespace kvtriage

#endif  // KVTRIAGE_KERNELS_CORE_SELECT_RULES_H_
