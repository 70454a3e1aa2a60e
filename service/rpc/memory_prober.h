// The doctor's round trip: reads or writes lent bytes on a thread of its own, so that neither gRPC
// nor the lane nor the unmapping of memory waits for 64 MiB.
#ifndef KVTRIAGE_SERVICE_RPC_MEMORY_PROBER_H_
#define KVTRIAGE_SERVICE_RPC_MEMORY_PROBER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtriage/v1/admin.pb.h"
#include "service/memory/device_memory.h"
#include "service/memory/mapper.h"
#include "service/session/session.h"

namespace kvtriage {

struct ProbeSpec {
  uint64_t region_id = 0;
  uint64_t offset = 0, length = 0;
  bool write = false;
  uint64_t seed = 0;
};

absl::StatusOr<ProbeSpec> ParseProbe(const v1::ProbeMemoryRequest& request);

struct ProbeResult {
  uint64_t checksum = 0;  // FNV-1a 64 of the bytes, after a write
  uint32_t microseconds = 0;
};

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;
// `hash`: of the bytes before.
uint64_t Fnv1a64(std::span<const std::byte> bytes, uint64_t hash = kFnvStart);
// 64-bit little-endian word i is splitmix64(seed + i); the last one is cut off where the bytes end.
void WritePattern(std::span<std::byte> bytes, uint64_t seed);

class MemoryProber {
 public:
  // `devices` (null: none) outlive it. `on_lost` is told when one of them is lost for good, on the
  // prober's thread; may be empty.
  explicit MemoryProber(const DeviceList* devices = nullptr,
                        std::function<void()> on_lost = nullptr);
  ~MemoryProber();

  // `done` exactly once, here or on the prober's thread: MEMORY_UNKNOWN, RANGE_OUT_OF_REGION,
  // REGION_READ_ONLY, QUEUE_FULL when eight wait already; for a device's memory also what its
  // copier says.
  void Probe(const std::shared_ptr<Session>& session, const ProbeSpec& spec,
             std::function<void(absl::StatusOr<ProbeResult>)> done);

 private:
  absl::StatusOr<ProbeResult> Run(const RegionPin& pin, const ProbeSpec& spec);
  absl::Status RunOnDevice(const RegionPin& pin, const ProbeSpec& spec, ProbeResult& result);

  const DeviceList* const devices_;
  const std::function<void()> on_lost_;
  std::vector<std::unique_ptr<DeviceCopier>> copiers_;  // by device; the prober's thread
  std::atomic<int> waiting_{0};
  Mapper
      thread_;  // runs tasks in order, which is all that is needed; last: its tasks use the others
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_RPC_MEMORY_PROBER_H_
