// Jobs that wait for the lane: round robin over sessions, first come first served within one. A
// lane runs one job at a time, so this order also gives each sequence one job at a time. Not
// thread-safe: the engine's lock guards it.
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

class JobQueue {
 public:
  using JobPtr = std::unique_ptr<Job>;

  void Push(JobPtr job);
  JobPtr Next();  // null when empty

  // Takes out all jobs of a session that `matches`, in order.
  std::vector<JobPtr> Take(uint64_t session_id, const std::function<bool(const Job&)>& matches);
  std::vector<JobPtr> TakeAll();

  uint32_t size() const { return size_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Turn {
    uint64_t session_id = 0;
    std::deque<JobPtr> jobs;  // never empty
  };

  std::list<Turn> turns_;  // the front's turn is next
  uint32_t size_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_JOB_QUEUE_H_
