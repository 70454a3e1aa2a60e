#include "kernels/emulation/counters.h"

#include <mutex>
#include <utility>

#include "kernels/emulation/instructions.h"

namespace kvtriage::emulation {
namespace {

std::mutex mutex;
Counters total;
Options options;

uint64_t SumOf(const std::array<uint64_t, 5>& by_width) {
  uint64_t sum = 0;
  for (const uint64_t bytes : by_width) sum += bytes;
  return sum;
}

}  // namespace

void SetOptions(const Options& wanted) { options = wanted; }
Options GetOptions() { return options; }
bool CountsAccesses() { return options.count_accesses; }

uint64_t Counters::global_load_bytes() const { return SumOf(load_bytes) + async_copy_bytes; }
uint64_t Counters::global_store_bytes() const { return SumOf(store_bytes); }

Counters& Counters::operator+=(const Counters& other) {
  grids += other.grids;
  mma += other.mma;
  ldmatrix += other.ldmatrix;
  ldmatrix_extra_passes += other.ldmatrix_extra_passes;
  async_copy_bytes += other.async_copy_bytes;
  block_barriers += other.block_barriers;
  switches += other.switches;
  for (size_t i = 0; i < load_bytes.size(); ++i) {
    load_bytes[i] += other.load_bytes[i];
    store_bytes[i] += other.store_bytes[i];
  }
  load_requests += other.load_requests;
  load_sectors += other.load_sectors;
  store_requests += other.store_requests;
  store_sectors += other.store_sectors;
  shared_requests += other.shared_requests;
  shared_extra_passes += other.shared_extra_passes;
  return *this;
}

void AddCounters(const Counters& counters) {
  const std::lock_guard<std::mutex> lock(mutex);
  total += counters;
}

Counters TakeCounters() {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(total, Counters{});
}

}  // namespace kvtriage::emulation
