// The device's own thread: runs one job at a time, in the order it is handed them.
#ifndef KVTRIAGE_SERVICE_ENGINE_LANE_H_
#define KVTRIAGE_SERVICE_ENGINE_LANE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/engine_observer.h"
#include "service/engine/job.h"
#include "service/engine/lane_device.h"

namespace kvtriage {

// Where lanes get their jobs and leave the results. Called on the lanes' threads.
class LaneDesk {
 public:
  virtual ~LaneDesk() = default;
  // Blocks until there is a job for the lane; null ends it.
  virtual std::unique_ptr<Job> NextJob(DeviceIndex lane) = 0;
  // Whether a repeat of the job's call waits for its answer too.
  virtual bool HasRepeats(const Job& job) = 0;
  virtual void Finish(std::unique_ptr<Job> job, CallResult result, absl::Duration spent) = 0;
  // A rank's call is scored: it waits for the others of its group, which comes back as one job.
  virtual void Park(std::unique_ptr<Job> job, absl::Duration spent) = 0;
  // One result per rank.
  virtual void FinishRanks(std::vector<std::unique_ptr<Job>> ranks, std::vector<CallResult> results,
                           absl::Duration spent) = 0;
};

class Lane {
 public:
  // The references outlive the lane.
  Lane(DeviceIndex index, DeviceLane device, const EngineLimits& limits, LaneDesk& desk);
  ~Lane();  // joins: the desk must have answered null

  // Waits until the lane's device is made; why it could not be, if so. Once.
  absl::Status WaitReady() { return ready_.get_future().get(); }

  // How long the running job has been on the lane; 0 when idle. Any thread.
  uint64_t RunningMs() const;

 private:
  void Loop();
  void RunJobs();
  // A rank's call gets its part instead of an answer.
  CallResult Run(Job& job);
  std::vector<CallResult> RunRanks(const std::vector<std::unique_ptr<Job>>& ranks);

  void TellLost(const absl::Status& status);

  const DeviceIndex index_;
  const DeviceLane device_lane_;
  LaneDevice device_;  // the lane's thread
  bool lost_ = false;  // the lane's thread
  std::promise<absl::Status> ready_;
  const EngineLimits& limits_;
  LaneDesk& desk_;
  std::atomic<int64_t> started_ns_{0};  // steady clock; 0 when idle
  std::thread thread_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LANE_H_
