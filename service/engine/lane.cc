#include "service/engine/lane.h"

#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/compress_job.h"
#include "service/engine/fuse.h"
#include "service/engine/group_run.h"
#include "service/engine/group_table.h"
#include "service/engine/job_context.h"
#include "service/engine/layer_step.h"
#include "service/engine/observe.h"
#include "service/engine/recompute.h"
#include "service/engine/rerotate.h"
#include "service/engine/rewind.h"
#include "service/engine/stopwatch.h"
#include "service/observe/fault_point.h"

namespace kvtriage {
namespace {

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint32_t Micros(absl::Duration duration) {
  return static_cast<uint32_t>(absl::ToInt64Microseconds(duration));
}

bool IsLost(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  return info && info->reason == ErrorReason::kDeviceLost;
}

// Every error that leaves the engine carries details; whatever else came out of a layer below is
// ours.
absl::Status Detailed(absl::Status status) {
  if (IsLost(status)) return WithCacheState(status, CacheState::kSeeLedger);
  if (status.ok() || GetErrorInfo(status)) return status;
  return Error(ErrorReason::kInternal, "", "unexpected failure in the engine");
}

// Whether the call is still wanted.
absl::Status CheckWanted(const Job& job, LaneDesk& desk) {
  if (absl::Now() >= job.call.deadline) {
    return Error(ErrorReason::kDeadlineUnmeetable, "", "the deadline passed before any row moved");
  }
  const bool cancelled = job.call.cancelled != nullptr && job.call.cancelled->load();
  if (!cancelled || desk.HasRepeats(job)) return absl::OkStatus();
  return Error(ErrorReason::kKeyDead, "", "cancelled before any row moved");
}

absl::Status RunJob(const JobContext& context, const Job& job, Answer& answer) {
  if (job.stream != nullptr) return RunLayerStep(context, job, answer);
  switch (job.kind) {
    case CallKind::kCompress:
      return RunCompress(context, job, answer);
    case CallKind::kObserve:
      return RunObserve(context, job, answer);
    case CallKind::kRewind:
      return RunRewind(job, answer);
    case CallKind::kSelectRecompute:
      return RunRecompute(context, job, answer);
    case CallKind::kRerotate:
      return RunRerotate(context, job, answer);
    case CallKind::kFuse:
      return RunFuse(context, job, answer);
    case CallKind::kCompressLayers:
    case CallKind::kRegister:
      break;  // the first has a stream, the second is never queued
  }
  return absl::InternalError("not a job");
}

absl::StatusOr<std::unique_ptr<GroupPart>> ScorePart(const JobContext& context, const Job& job,
                                                     Answer& answer) {
  return job.kind == CallKind::kCompress ? ScoreCompressPart(context, job, answer)
                                         : ScoreRecomputePart(context, job, answer);
}

}  // namespace

Lane::Lane(DeviceIndex index, DeviceLane device, const EngineLimits& limits, LaneDesk& desk)
    : index_(index), device_lane_(std::move(device)), limits_(limits), desk_(desk) {
  thread_ = std::thread([this] { Loop(); });
}

Lane::~Lane() { thread_.join(); }

uint64_t Lane::RunningMs() const {
  const int64_t started = started_ns_.load(std::memory_order_relaxed);
  return started == 0 ? 0 : static_cast<uint64_t>((SteadyNs() - started) / 1'000'000);
}

void Lane::Loop() {
  absl::StatusOr<LaneDevice> made = device_lane_.make();
  const bool ready = made.ok();
  if (ready) device_ = *std::move(made);
  ready_.set_value(made.status());
  if (ready) RunJobs();
  device_ = {};
}

void Lane::RunJobs() {
  while (std::unique_ptr<Job> job = desk_.NextJob(index_)) {
    started_ns_.store(SteadyNs(), std::memory_order_relaxed);
    const Stopwatch watch;
    FaultPoint("lane.job_start");
    if (!job->ranks.empty()) {
      std::vector<CallResult> results = RunRanks(job->ranks);
      started_ns_.store(0, std::memory_order_relaxed);
      absl::Status lost;
      for (const CallResult& result : results) lost = IsLost(result.status) ? result.status : lost;
      desk_.FinishRanks(std::move(job->ranks), std::move(results), absl::Seconds(watch.seconds()));
      TellLost(lost);
      continue;
    }
    CallResult result = Run(*job);
    started_ns_.store(0, std::memory_order_relaxed);
    const absl::Duration spent = absl::Seconds(watch.seconds());
    const absl::Status status = result.status;
    if (job->part != nullptr) {
      desk_.Park(std::move(job), spent);
    } else {
      desk_.Finish(std::move(job), std::move(result), spent);
    }
    TellLost(status);
  }
}

void Lane::TellLost(const absl::Status& status) {
  if (lost_ || !IsLost(status)) return;
  lost_ = true;
  if (device_lane_.on_lost != nullptr) device_lane_.on_lost();
}

std::vector<CallResult> Lane::RunRanks(const std::vector<std::unique_ptr<Job>>& ranks) {
  const std::vector<absl::Status> statuses =
      RunGroup(ranks, [this](const Job& job) { return CheckWanted(job, desk_); });
  std::vector<CallResult> results(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    results[i].status = Detailed(statuses[i]);
    if (!results[i].status.ok()) continue;
    ranks[i]->answer->timing.total = Micros(absl::Now() - ranks[i]->admitted);
    results[i].answer = ranks[i]->answer;
  }
  return results;
}

CallResult Lane::Run(Job& job) {
  const absl::Duration waited = absl::Now() - job.admitted;
  if (device_lane_.observer != nullptr && !job.closes_stream()) {
    device_lane_.observer->OnStage(Stage::kQueue, absl::ToDoubleSeconds(waited));
  }
  auto answer = std::make_shared<Answer>();
  answer->job_id = job.id;
  const JobContext context{*device_.backend,
                           device_.ForHostInputs(),
                           device_.copier.get(),
                           index_,
                           device_lane_.observer,
                           limits_,
                           [&job, this] {
                             // What ends a stream has to be done whoever waits for it.
                             return job.closes_stream() ? absl::OkStatus()
                                                        : CheckWanted(job, desk_);
                           }};
  CallResult result;
  result.status = context.stop();
  if (result.status.ok() && GroupOf(job) != nullptr) {
    absl::StatusOr<std::unique_ptr<GroupPart>> part = ScorePart(context, job, *answer);
    result.status = Detailed(part.status());
    if (!part.ok()) return result;
    answer->timing.queue = Micros(waited);
    job.part = *std::move(part);
    job.answer = std::move(answer);
    return result;
  }
  if (result.status.ok()) result.status = Detailed(RunJob(context, job, *answer));
  result.replayed = job.stored != nullptr;
  if (result.status.ok() && result.replayed) result.answer = job.stored;
  if (!result.status.ok() || result.replayed) return result;
  if (!job.closes_stream()) {
    answer->timing.queue = Micros(waited);
    answer->timing.total = Micros(absl::Now() - job.admitted);
  }
  result.answer = std::move(answer);
  return result;
}

}  // namespace kvtriage
