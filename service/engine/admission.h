// Whether one more job may wait for the lane, and how long it would. Knows numbers only, no jobs.
// Not thread-safe: the engine's lock guards it.
#ifndef KVTRIAGE_SERVICE_ENGINE_ADMISSION_H_
#define KVTRIAGE_SERVICE_ENGINE_ADMISSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "service/engine/engine.h"

namespace kvtriage {

// How things stand when a job asks.
struct AdmissionState {
  bool draining = false;
  bool sick = false;
  uint32_t session_jobs = 0;     // queued and running
  uint32_t queued = 0;           // of all sessions
  uint64_t queued_bytes = 0;     // of those
  uint64_t running_bytes = 0;    // of the job on the lane
  absl::Duration running_since;  // how long it has been there
};

class Admission {
 public:
  // `seed` feeds the random factor of retry hints.
  Admission(const EngineLimits& limits, uint64_t seed) : limits_(limits), seed_(seed) {}

  // In this order: DRAINING, DEVICE_SICK, SESSION_BUSY, QUEUE_FULL, DEADLINE_UNMEETABLE.
  absl::Status Check(const AdmissionState& state, absl::Duration time_left);

  // Draining and sick alone: what a call without a lane job is held to.
  static absl::Status CheckOpen(bool draining, bool sick);

  // A job of `bytes` took `spent` on the lane.
  void Learn(uint64_t bytes, absl::Duration spent);

  // Expected time for the lane to get through `bytes`; 0 before the first job.
  absl::Duration TimeFor(uint64_t bytes) const;

 private:
  absl::Duration QueueTime(const AdmissionState& state) const;
  uint32_t RetryAfterMs(absl::Duration wait);

  const EngineLimits limits_;
  const uint64_t seed_;
  uint64_t hints_ = 0;
  double bytes_ = 0,
         seconds_ = 0;  // decayed sums: large jobs tell more about the rate than small ones
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_ADMISSION_H_
