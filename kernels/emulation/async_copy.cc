#include "kernels/emulation/async_copy.h"

#include <cstring>
#include <utility>

#include "kernels/emulation/block.h"
#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {
namespace {

constexpr uint32_t kVectorBytes = 16;

void Land(const PendingCopy& copy) {
  if (!NoteWrite(copy.to, kVectorBytes)) Fail("cp.async writes out of bounds");
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(copy.to + copy.bytes, 0, kVectorBytes - copy.bytes);
}

}  // namespace

void CopyAsync16(void* shared, const void* global, uint32_t bytes) {
  Thread& thread = *current;
  auto* to = static_cast<std::byte*>(shared);
  const auto* from = static_cast<const std::byte*>(global);
  if (bytes > kVectorBytes) Fail("cp.async copies at most 16 bytes");
  if (reinterpret_cast<uintptr_t>(to) % kVectorBytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % kVectorBytes != 0) {
    Fail("a cp.async address is not 16-byte aligned");
  }
  const Block& block = *thread.block;
  if (to < block.shared || to + kVectorBytes > block.shared + block.shared_bytes) {
    Fail("cp.async writes outside of shared memory");
  }
  if (bytes != 0 && !NoteRead(from, bytes)) Fail("cp.async reads out of bounds");
  if (!NoteWrite(to, kVectorBytes)) Fail("cp.async writes out of bounds");
  std::memset(to, 0xFF, kVectorBytes);
  thread.block->counters->async_copy_bytes += bytes;
  thread.open_group.push_back({to, from, bytes});
}

void CommitCopies() {
  current->groups.push_back(std::move(current->open_group));
  current->open_group.clear();
}

void WaitCopies(uint32_t pending_groups) {
  auto& groups = current->groups;
  while (groups.size() > pending_groups) {
    for (const PendingCopy& copy : groups.front()) Land(copy);
    groups.erase(groups.begin());
  }
}

void LandAtExit(Thread& thread) {
  for (const auto& group : thread.groups) {
    for (const PendingCopy& copy : group) Land(copy);
  }
  if (!thread.open_group.empty()) Fail("a thread ends with a cp.async that it has not committed");
}

}  // namespace kvtriage::emulation
