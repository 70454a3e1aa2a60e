// The device's own thread: runs one job at a time, in the order it is handed them.
#ifndef KVTRIAGE_SERVICE_ENGINE_LANE_H_
#define KVTRIAGE_SERVICE_ENGINE_LANE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kvtriage/kernels/backend.h"
#include "service/engine/engine_observer.h"
#include "service/engine/job.h"

namespace kvtriage {

// Where the lane gets its jobs and leaves their results. Called on the lane's thread.
class LaneDesk {
 public:
  virtual ~LaneDesk() = default;
  // Blocks until there is a job; null ends the lane.
  virtual std::unique_ptr<Job> NextJob() = 0;
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
  // All outlive the lane; `observer` may be null.
  Lane(Backend& backend, const EngineLimits& limits, EngineObserver* observer, LaneDesk& desk);
  ~Lane();  // joins: the desk must have answered null

  // How long the running job has been on the lane; 0 when idle. Any thread.
  uint64_t RunningMs() const;

 private:
  void Loop();
  // A rank's call gets its part instead of an answer.
  CallResult Run(Job& job);
  std::vector<CallResult> RunRanks(const std::vector<std::unique_ptr<Job>>& ranks);

  Backend& backend_;
  const EngineLimits& limits_;
  EngineObserver* const observer_;
  LaneDesk& desk_;
  std::atomic<int64_t> started_ns_{0};  // steady clock; 0 when idle
  std::thread thread_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_LANE_H_
