#include "kernels/emulation/access_log.h"

#include <algorithm>
#include <bit>
#include <set>

#include "kernels/emulation/block.h"
#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {
namespace {

constexpr uintptr_t kSectorBytes = 32, kBankBytes = 4;
constexpr size_t kBanks = 32;

// The banks serve 128 bytes at a time: all lanes at up to 4 bytes each, 16 lanes at 8, 8 at 16. A
// pass serves one word of every bank; lanes that want the same word share it.
uint64_t ExtraPasses(uint32_t lanes, const std::array<uintptr_t, 32>& addresses, uint32_t width) {
  const uint32_t lanes_at_once = width <= 4 ? 32 : 128 / width;
  uint64_t extra = 0;
  for (uint32_t first = 0; first < 32; first += lanes_at_once) {
    std::array<std::set<uintptr_t>, kBanks> words;
    for (uint32_t lane = first; lane < first + lanes_at_once; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      for (uintptr_t byte = 0; byte < width; byte += kBankBytes) {
        const uintptr_t word = (addresses[lane] + byte) / kBankBytes;
        words[word % kBanks].insert(word);
      }
    }
    size_t passes = 1;
    for (const auto& bank : words) passes = std::max(passes, bank.size());
    extra += passes - 1;
  }
  return extra;
}

uint64_t Sectors(uint32_t lanes, const std::array<uintptr_t, 32>& addresses) {
  std::set<uintptr_t> sectors;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((lanes >> lane & 1) != 0) sectors.insert(addresses[lane] / kSectorBytes);
  }
  return sectors.size();
}

}  // namespace

void AccessLog::Count(Access access, const Request& request, Counters& counters) {
  const uint64_t bytes =
      uint64_t{request.width} * static_cast<uint64_t>(std::popcount(request.lanes));
  const size_t width_class = static_cast<size_t>(std::countr_zero(request.width));
  switch (access) {
    case Access::kGlobalLoad:
      counters.load_bytes[width_class] += bytes;
      ++counters.load_requests;
      counters.load_sectors += Sectors(request.lanes, request.addresses);
      break;
    case Access::kGlobalStore:
      counters.store_bytes[width_class] += bytes;
      ++counters.store_requests;
      counters.store_sectors += Sectors(request.lanes, request.addresses);
      break;
    case Access::kShared:
      ++counters.shared_requests;
      counters.shared_extra_passes += ExtraPasses(request.lanes, request.addresses, request.width);
      break;
  }
}

void AccessLog::Record(const void* place, Access access, uint32_t lane, uint32_t live,
                       const void* address, uint32_t width, Counters& counters) {
  const Unwatched unwatched;
  Place& here = places_.try_emplace(place, Place{.access = access}).first->second;
  const uint64_t number = here.made[lane]++;
  if (number < here.first_open) {  // the others have gone on without this lane
    Request alone{.lanes = 1u << lane, .width = width};
    alone.addresses[lane] = reinterpret_cast<uintptr_t>(address);
    Count(access, alone, counters);
    return;
  }
  while (here.first_open + here.open.size() <= number) here.open.push_back({.width = width});
  Request& request = here.open[number - here.first_open];
  request.lanes |= 1u << lane;
  request.addresses[lane] = reinterpret_cast<uintptr_t>(address);
  while (!here.open.empty() && (live & ~here.open.front().lanes) == 0) {
    Count(access, here.open.front(), counters);
    here.open.pop_front();
    ++here.first_open;
  }
}

void AccessLog::Close(Counters& counters) {
  if (places_.empty()) return;
  const Unwatched unwatched;
  for (const auto& [place, here] : places_) {
    for (const Request& request : here.open) Count(here.access, request, counters);
  }
  places_.clear();
}

void RecordAccess(Access access, const void* address, uint32_t width) {
  Thread& thread = *current;
  if (access == Access::kShared) {
    const auto* at = static_cast<const std::byte*>(address);
    const Block& block = *thread.block;
    if (at < block.shared || at + width > block.shared + block.shared_bytes) {
      Fail("an access outside of shared memory");
    }
  }
  Warp& warp = thread.block->warps[thread.warp];
  warp.accesses.Record(__builtin_return_address(0), access, thread.lane, warp.live, address, width,
                       *thread.block->counters);
}

}  // namespace kvtriage::emulation
