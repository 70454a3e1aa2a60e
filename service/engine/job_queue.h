// Jobs that wait for the lanes: round robin over sessions, first come first served within one. A
// job whose sequences are held by somebody else (also by the job that another lane runs) is passed
// over, and so are later jobs of these sequences. Not thread-safe: the engine's lock guards it.
#ifndef KVTRIAGE_SERVICE_ENGINE_JOB_QUEUE_H_
#define KVTRIAGE_SERVICE_ENGINE_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "service/engine/job.h"

namespace kvtriage {

// Whether two ascending lists of sequence ids meet.
bool Touches(const std::vector<uint64_t>& mine, const std::vector<uint64_t>& others);

class JobQueue {
 public:
  using JobPtr = std::unique_ptr<Job>;

  void Push(JobPtr job);
  using Held = std::function<bool(const Job&)>;
  // The job of this lane whose turn it is; null when there is none, or all are held.
  JobPtr Next(DeviceIndex lane, const Held& held);
  bool HasNext(DeviceIndex lane, const Held& held) const;

  // Takes out all jobs of a session that `matches`, in order.
  std::vector<JobPtr> Take(uint64_t session_id, const std::function<bool(const Job&)>& matches);
  std::vector<JobPtr> TakeAll();

  uint32_t size() const { return size_; }
  struct Load {
    uint32_t jobs = 0;
    uint64_t bytes = 0;
  };
  Load load(DeviceIndex lane) const { return lane < loads_.size() ? loads_[lane] : Load(); }

 private:
  struct Turn {
    uint64_t session_id = 0;
    std::deque<JobPtr> jobs;  // never empty
  };

  // Place of a turn's first job that may run on the lane; jobs.size() when there is none.
  static size_t FirstOf(const Turn& turn, DeviceIndex lane, const Held& held);
  void Count(const Job& job);
  void Uncount(const Job& job);

  std::list<Turn> turns_;  // the front's turn is next
  uint32_t size_ = 0;
  std::vector<Load> loads_;  // by lane
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_JOB_QUEUE_H_
