#include "service/engine/admission.h"

#include <algorithm>

#include "kernels/core/error.h"
#include "kernels/core/splitmix64.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

constexpr double kDecay = 0.9;  // per job
constexpr double kLeastRetryMs = 5, kMostRetryMs = 2000;

}  // namespace

absl::Status Admission::CheckOpen(bool draining, bool sick) {
  if (draining) return Error(ErrorReason::kDraining, "", "the service is draining");
  if (sick) return Error(ErrorReason::kDeviceSick, "", "the lane is stuck; the service will exit");
  return absl::OkStatus();
}

absl::Status Admission::Check(const AdmissionState& state, absl::Duration time_left) {
  KVTRIAGE_RETURN_IF_ERROR(CheckOpen(state.draining, state.sick));
  const absl::Duration wait = QueueTime(state);
  if (state.session_jobs >= limits_.jobs_per_session) {
    return Error(ErrorReason::kSessionBusy, "", "jobs of this session in flight")
        .Got(state.session_jobs)
        .Limit(limits_.jobs_per_session)
        .RetryAfterMs(RetryAfterMs(wait));
  }
  if (state.queued >= limits_.lane_queue) {
    return Error(ErrorReason::kQueueFull, "", "jobs waiting for the lane")
        .Got(state.queued)
        .Limit(limits_.lane_queue)
        .RetryAfterMs(RetryAfterMs(wait));
  }
  if (time_left <= absl::ZeroDuration() || wait > time_left) {
    return Error(ErrorReason::kDeadlineUnmeetable, "",
                 "the queue is longer than the deadline, in ms")
        .Got(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(wait))))
        .Limit(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(time_left))));
  }
  return absl::OkStatus();
}

void Admission::Learn(uint64_t bytes, absl::Duration spent) {
  bytes_ = bytes_ * kDecay + static_cast<double>(bytes);
  seconds_ = seconds_ * kDecay + absl::ToDoubleSeconds(spent);
}

absl::Duration Admission::TimeFor(uint64_t bytes) const {
  if (bytes_ <= 0) return absl::ZeroDuration();
  return absl::Seconds(static_cast<double>(bytes) * seconds_ / bytes_);
}

absl::Duration Admission::QueueTime(const AdmissionState& state) const {
  const absl::Duration running = TimeFor(state.running_bytes) - state.running_since;
  return TimeFor(state.queued_bytes) + std::max(running, absl::ZeroDuration());
}

uint32_t Admission::RetryAfterMs(absl::Duration wait) {
  const double ms = std::clamp(absl::ToDoubleMilliseconds(wait), kLeastRetryMs, kMostRetryMs);
  // Spread, so that those who were refused together do not come back together.
  const double spread = 0.5 + static_cast<double>(SplitMix64(seed_, hints_++) >> 11) * 0x1p-53;
  return static_cast<uint32_t>(ms * spread + 0.5);
}

}  // namespace kvtriage
