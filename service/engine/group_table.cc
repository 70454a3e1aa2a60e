#include "service/engine/group_table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

// Groups that are over and still known by name.
constexpr size_t kRememberedGroups = 1024;

bool SameCall(const CallKey& a, const CallKey& b) {
  return a.session_id == b.session_id && a.key == b.key;
}

absl::Status Mismatch(std::string_view field, std::string_view text) {
  return Error(ErrorReason::kGroupMismatch, field, text);
}

}  // namespace

const GroupSpec* GroupOf(const Job& job) {
  const std::optional<GroupSpec>* group = nullptr;
  if (const auto* compress = std::get_if<CompressSpec>(&job.spec)) group = &compress->group;
  if (const auto* blend = std::get_if<SelectRecomputeSpec>(&job.spec)) group = &blend->group;
  return group == nullptr || !group->has_value() ? nullptr : &**group;
}

absl::Status GroupTable::Join(const GroupId& id, const Job& job, absl::Time deadline) {
  const GroupSpec& spec = *GroupOf(job);
  if (std::find(over_.begin(), over_.end(), id) != over_.end()) {
    return Mismatch("group.group_key", "the group is over: every call needs a new key");
  }
  auto found = groups_.find(id);
  if (found == groups_.end()) {
    if (groups_.size() >= limits_.groups) {
      return Error(ErrorReason::kQuotaState, "group", "groups that wait for ranks")
          .Got(groups_.size())
          .Limit(limits_.groups);
    }
    found = groups_.try_emplace(id).first;
    found->second.kind = job.kind;
    found->second.size = spec.size;
    found->second.device = job.device;
  }
  Group& group = found->second;
  if (group.kind != job.kind) return Mismatch("group.group_key", "the ranks make different calls");
  if (group.device != job.device) {
    return Error(ErrorReason::kMixedMemory, "group", "the ranks' memory is of different devices");
  }
  if (group.size != spec.size) return Mismatch("group.size", "the ranks differ in it");
  if (!group.ranks.try_emplace(spec.rank, Rank{job.key, nullptr}).second) {
    return Mismatch("group.rank", "the rank has come already");
  }
  group.deadline = std::min(group.deadline, deadline);
  return absl::OkStatus();
}

bool GroupTable::Expects(const GroupId& id, const Job& job) const {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return false;
  const auto rank = found->second.ranks.find(GroupOf(job)->rank);
  return rank != found->second.ranks.end() && SameCall(rank->second.call, job.key);
}

absl::Status GroupTable::Park(const GroupId& id, std::unique_ptr<Job>& job) {
  Group& group = groups_.find(id)->second;
  for (const auto& [number, rank] : group.ranks) {
    if (rank.job == nullptr) continue;
    KVTRIAGE_RETURN_IF_ERROR(CheckTermsEqual(rank.job->part->terms(), job->part->terms()));
    break;  // those that wait agree with each other
  }
  const uint64_t bytes = job->part->bytes();
  if (bytes > limits_.group_bytes - bytes_) {
    return Error(ErrorReason::kQuotaState, "group", "scores that wait for ranks, in bytes")
        .Got(bytes_ + bytes)
        .Limit(limits_.group_bytes);
  }
  group.bytes += bytes;
  bytes_ += bytes;
  ++group.waiting;
  ++waiting_;
  group.ranks[GroupOf(*job)->rank].job = std::move(job);
  if (group.whole()) ready_.push_back(id);
  return absl::OkStatus();
}

std::deque<GroupId>::const_iterator GroupTable::FindReady(DeviceIndex lane) const {
  return std::find_if(ready_.begin(), ready_.end(), [this, lane](const GroupId& id) {
    return groups_.find(id)->second.device == lane;
  });
}

std::vector<std::unique_ptr<Job>> GroupTable::TakeReady(DeviceIndex lane) {
  std::vector<std::unique_ptr<Job>> jobs;
  const auto ready = FindReady(lane);
  if (ready == ready_.cend()) return jobs;
  for (Member& member : End(GroupId(*ready))) jobs.push_back(std::move(member.job));
  return jobs;
}

std::vector<GroupTable::Member> GroupTable::End(const GroupId& id) {
  std::vector<Member> members;
  const auto found = groups_.find(id);
  if (found == groups_.end()) return members;
  for (auto& [number, rank] : found->second.ranks) {
    members.push_back({rank.call, std::move(rank.job)});
  }
  waiting_ -= found->second.waiting;
  bytes_ -= found->second.bytes;
  std::erase(ready_, id);
  over_.push_back(id);
  if (over_.size() > kRememberedGroups) over_.pop_front();
  groups_.erase(found);
  return members;
}

std::vector<GroupTable::Due> GroupTable::FindDue(absl::Time now, const Unwanted& unwanted) const {
  std::vector<Due> due;
  for (const auto& [id, group] : groups_) {
    if (group.whole()) continue;
    const auto gone = std::find_if(group.ranks.begin(), group.ranks.end(), [&](const auto& rank) {
      return rank.second.job != nullptr && unwanted(*rank.second.job);
    });
    if (gone != group.ranks.end()) {
      due.push_back({id, gone->second.call});
    } else if (group.deadline - kGroupMargin <= now) {
      due.push_back({id, std::nullopt});
    }
  }
  return due;
}

std::optional<absl::Time> GroupTable::NextDue() const {
  std::optional<absl::Time> next;
  for (const auto& [id, group] : groups_) {
    if (group.whole()) continue;
    const absl::Time due = group.deadline - kGroupMargin;
    next = next ? std::min(*next, due) : due;
  }
  return next;
}

std::vector<GroupTable::Found> GroupTable::Waiting(
    uint64_t session_id, const std::function<bool(const Job&)>& matches) const {
  std::vector<Found> found;
  for (const auto& [id, group] : groups_) {
    for (const auto& [number, rank] : group.ranks) {
      if (rank.job == nullptr || rank.call.session_id != session_id) continue;
      if (matches(*rank.job)) found.push_back({id, rank.call});
    }
  }
  return found;
}

std::vector<GroupId> GroupTable::Incomplete() const {
  std::vector<GroupId> ids;
  for (const auto& [id, group] : groups_) {
    if (group.ranks.size() < group.size) ids.push_back(id);
  }
  return ids;
}

std::vector<GroupId> GroupTable::All() const {
  std::vector<GroupId> ids;
  for (const auto& [id, group] : groups_) ids.push_back(id);
  return ids;
}

}  // namespace kvtriage
