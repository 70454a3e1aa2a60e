#include "service/engine/job_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kvtriage {

void JobQueue::Count(const Job& job) {
  ++size_;
  if (job.device >= loads_.size()) loads_.resize(job.device + 1);
  ++loads_[job.device].jobs;
  loads_[job.device].bytes += job.bytes;
}

void JobQueue::Uncount(const Job& job) {
  --size_;
  --loads_[job.device].jobs;
  loads_[job.device].bytes -= job.bytes;
}

void JobQueue::Push(JobPtr job) {
  Count(*job);
  const uint64_t id = job->session_id();
  auto turn = std::find_if(turns_.begin(), turns_.end(),
                           [id](const Turn& candidate) { return candidate.session_id == id; });
  if (turn == turns_.end()) {
    turns_.emplace_back().session_id = id;
    turn = std::prev(turns_.end());
  }
  turn->jobs.push_back(std::move(job));
}

size_t JobQueue::FirstOf(const Turn& turn, DeviceIndex lane, const Held& held) {
  std::vector<uint64_t> passed_over;  // sequences of the jobs before, ascending
  for (size_t i = 0; i < turn.jobs.size(); ++i) {
    const Job& job = *turn.jobs[i];
    // The steps of an open stream come before whoever waits for its sequences.
    const bool free = job.in_stream() || (!Touches(job.sequence_ids, passed_over) && !held(job));
    if (job.device == lane && free) return i;
    passed_over.insert(passed_over.end(), job.sequence_ids.begin(), job.sequence_ids.end());
    std::sort(passed_over.begin(), passed_over.end());
  }
  return turn.jobs.size();
}

bool JobQueue::HasNext(DeviceIndex lane, const Held& held) const {
  return std::any_of(turns_.begin(), turns_.end(), [&](const Turn& turn) {
    return FirstOf(turn, lane, held) < turn.jobs.size();
  });
}

JobQueue::JobPtr JobQueue::Next(DeviceIndex lane, const Held& held) {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    const size_t place = FirstOf(*turn, lane, held);
    if (place == turn->jobs.size()) continue;
    JobPtr job = std::move(turn->jobs[place]);
    turn->jobs.erase(turn->jobs.begin() + static_cast<int64_t>(place));
    Uncount(*job);
    if (turn->jobs.empty()) {
      turns_.erase(turn);
    } else {
      turns_.splice(turns_.end(), turns_, turn);
    }
    return job;
  }
  return nullptr;
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
      Uncount(*job);
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
  for (Turn& turn : turns_) {
    for (JobPtr& job : turn.jobs) taken.push_back(std::move(job));
  }
  turns_.clear();
  loads_.clear();
  size_ = 0;
  return taken;
}

bool Touches(const std::vector<uint64_t>& mine, const std::vector<uint64_t>& others) {
  const bool mine_is_longer = mine.size() > others.size();
  const std::vector<uint64_t>& longer = mine_is_longer ? mine : others;
  const std::vector<uint64_t>& shorter = mine_is_longer ? others : mine;
  return std::any_of(shorter.begin(), shorter.end(), [&longer](uint64_t id) {
    return std::binary_search(longer.begin(), longer.end(), id);
  });
}

}  // namespace kvtriage
