#include "kernels/emulation/collective.h"

#include <algorithm>
#include <bit>

#include "kernels/emulation/instructions.h"

namespace kvtriage::emulation {
namespace {

// The lane that `lane` reads from; itself when that would be outside of its segment.
uint32_t SourceLane(uint32_t lane, Shuffle mode, uint32_t argument, uint32_t width) {
  const uint32_t first = lane & ~(width - 1);
  uint64_t source = lane;
  switch (mode) {
    case Shuffle::kXor:
      source = lane ^ argument;
      break;
    case Shuffle::kDown:
      source = uint64_t{lane} + argument;
      break;
    case Shuffle::kUp:
      source = argument > lane - first ? lane : lane - argument;
      break;
    case Shuffle::kIndex:
      source = first + (argument & (width - 1));
      break;
  }
  return source < first || source >= first + width ? lane : static_cast<uint32_t>(source);
}

uint32_t Combine(uint32_t a, uint32_t b, Reduction operation) {
  switch (operation) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      return a ^ b;
  }
  return a;
}

}  // namespace

Meeting& Arrive(Warp& warp, uint32_t mask, const char* instruction) {
  const Unwatched unwatched;
  Thread& thread = *current;
  if ((mask >> thread.lane & 1) == 0) Fail("a lane is not in its own mask");
  if ((mask & ~warp.live) != 0) Fail("a mask names a lane that has ended or does not exist");
  thread.where = instruction;
  for (Meeting& meeting : warp.meetings) {
    if ((meeting.mask & mask) == 0) continue;
    if (meeting.mask != mask || meeting.instruction != instruction) {
      Fail("lanes of a warp meet in different instructions or with different masks");
    }
    meeting.arrived |= 1u << thread.lane;
    return meeting;
  }
  warp.meetings.push_back({mask, 1u << thread.lane, instruction, warp.parity});
  warp.parity ^= 1;
  return warp.meetings.back();
}

void Part(Block& block, Warp& warp, uint32_t mask, Thread* lanes) {
  const Unwatched unwatched;
  std::erase_if(warp.meetings, [mask](const Meeting& meeting) { return meeting.mask == mask; });
  if (mask == warp.live) warp.accesses.Close(*block.counters);
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1) != 0) lanes[lane].state = ThreadState::kReady;
  }
}

void WarpBarrier(uint32_t mask) {
  MeetLanes(mask, "__syncwarp", Orders::kMemory, [](Thread*) {});
}

uint64_t ShuffleBits(uint32_t mask, uint64_t bits, Shuffle mode, uint32_t argument,
                     uint32_t width) {
  if (width == 0 || width > kWarpLanes || !std::has_single_bit(width)) {
    Fail("the width of a shuffle is a power of two up to 32");
  }
  Thread& thread = *current;
  thread.sent = bits;
  thread.source = SourceLane(thread.lane, mode, argument, width);
  if ((mask >> thread.source & 1) == 0) Fail("a shuffle reads a lane outside of the mask");
  MeetLanes(mask, "__shfl", Orders::kNothing, [mask](Thread* lanes) {
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) != 0) lanes[lane].received = lanes[lanes[lane].source].sent;
    }
  });
  return thread.received;
}

uint32_t BallotBits(uint32_t mask, bool predicate) {
  current->sent = predicate ? 1 : 0;
  MeetLanes(mask, "__ballot", Orders::kNothing, [mask](Thread* lanes) {
    uint32_t bits = 0;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) != 0 && lanes[lane].sent != 0) bits |= 1u << lane;
    }
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) != 0) lanes[lane].received = bits;
    }
  });
  return static_cast<uint32_t>(current->received);
}

uint32_t MatchAnyBits(uint32_t mask, uint64_t bits) {
  current->sent = bits;
  MeetLanes(mask, "__match_any", Orders::kNothing, [mask](Thread* lanes) {
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      uint32_t same = 0;
      for (uint32_t other = 0; other < kWarpLanes; ++other) {
        if ((mask >> other & 1) != 0 && lanes[other].sent == lanes[lane].sent) same |= 1u << other;
      }
      lanes[lane].received = same;
    }
  });
  return static_cast<uint32_t>(current->received);
}

uint32_t ReduceBits(uint32_t mask, uint32_t value, Reduction operation) {
  current->sent = value;
  MeetLanes(mask, "__reduce", Orders::kNothing, [mask, operation](Thread* lanes) {
    const uint32_t first = static_cast<uint32_t>(std::countr_zero(mask));
    uint32_t result = static_cast<uint32_t>(lanes[first].sent);
    for (uint32_t lane = first + 1; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      result = Combine(result, static_cast<uint32_t>(lanes[lane].sent), operation);
    }
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
      if ((mask >> lane & 1) != 0) lanes[lane].received = result;
    }
  });
  return static_cast<uint32_t>(current->received);
}

}  // namespace kvtriage::emulation
