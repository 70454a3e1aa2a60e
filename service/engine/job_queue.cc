#include "service/engine/job_queue.h"

#include <algorithm>
#include <utility>

namespace kvtriage {

void JobQueue::Push(JobPtr job) {
  ++size_;
  bytes_ += job->bytes;
  const uint64_t id = job->session_id();
  auto turn = std::find_if(turns_.begin(), turns_.end(),
                           [id](const Turn& candidate) { return candidate.session_id == id; });
  if (turn == turns_.end()) {
    turns_.emplace_back().session_id = id;
    turn = std::prev(turns_.end());
  }
  turn->jobs.push_back(std::move(job));
}

JobQueue::JobPtr JobQueue::Next() {
  if (turns_.empty()) return nullptr;
  Turn& turn = turns_.front();
  JobPtr job = std::move(turn.jobs.front());
  turn.jobs.pop_front();
  --size_;
  bytes_ -= job->bytes;
  if (turn.jobs.empty()) {
    turns_.pop_front();
  } else {
    turns_.splice(turns_.end(), turns_, turns_.begin());
  }
  return job;
}

std::vector<JobQueue::JobPtr> JobQueue::Take(uint64_t session_id,
                                             const std::function<bool(const Job&)>& matches) {
  std::vector<JobPtr> taken;
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    if (turn->session_id != session_id) continue;
    std::deque<JobPtr> left;
    for (JobPtr& job : turn->jobs) {
      if (!matches(*job)) {
        left.push_back(std::move(job));
        continue;
      }
      --size_;
      bytes_ -= job->bytes;
      taken.push_back(std::move(job));
    }
    turn->jobs = std::move(left);
    if (turn->jobs.empty()) turns_.erase(turn);
    break;
  }
  return taken;
}

std::vector<JobQueue::JobPtr> JobQueue::TakeAll() {
  std::vector<JobPtr> taken;
  while (JobPtr job = Next()) taken.push_back(std::move(job));
  return taken;
}

}  // namespace kvtriage
